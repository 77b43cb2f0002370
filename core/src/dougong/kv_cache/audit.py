"""Proof that no block was lost, doubled or confused; for tests and for hunting a fault.

Walks over every block, so it does not belong into a step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dougong.kv_cache.allocator import BlockAllocator
from dougong.kv_cache.block_table import BlockTable


def audit(allocator: BlockAllocator, tables: Mapping[str, BlockTable]) -> list[str]:
    """Every broken invariant of the pool, one sentence each; empty when all is well.

    Args:
        allocator: The pool's owner.
        tables: The block tables of all live requests, by request id.
    """
    return [
        *_audit_counts(allocator, tables),
        *_audit_partition(allocator),
        *_audit_tables(allocator, tables),
        *_audit_indexes(allocator),
    ]


def _audit_counts(allocator: BlockAllocator, tables: Mapping[str, BlockTable]) -> list[str]:
    pool = allocator.pool
    holders: Counter[int] = Counter()
    for table in tables.values():
        for group in table.block_ids:
            holders.update(group)
    return [
        f"block {block} counts {pool.reference_count(block)} holders and is in "
        f"{holders[block]} block tables"
        for block in range(pool.num_blocks)
        if pool.reference_count(block) != holders[block]
    ]


def _audit_partition(allocator: BlockAllocator) -> list[str]:
    pool = allocator.pool
    blank, cached = pool.free_blocks()
    problems = []
    for block, count in Counter([*blank, *cached]).items():
        if count > 1:
            problems.append(f"block {block} is free {count} times")
        if pool.reference_count(block):
            problems.append(f"block {block} is free and held")
        if block < pool.reserved_blocks:
            problems.append(f"block {block} is free and reserved")
    free = set(blank) | set(cached)
    problems += [
        f"block {block} is lost: neither free nor held"
        for block in range(pool.reserved_blocks, pool.num_blocks)
        if block not in free and not pool.reference_count(block)
    ]
    return problems


def _audit_tables(allocator: BlockAllocator, tables: Mapping[str, BlockTable]) -> list[str]:
    problems = []
    for request_id, table in tables.items():
        lengths = {len(group) for group in table.block_ids}
        if lengths != {table.num_tokens // allocator.block_size}:
            problems.append(f"{request_id} has room for {table.num_tokens} tokens in {lengths}")
        blocks = [block for group in table.block_ids for block in group]
        if len(set(blocks)) != len(blocks):
            problems.append(f"{request_id} has a block twice: {blocks}")
        if any(block < allocator.pool.reserved_blocks for block in blocks):
            problems.append(f"{request_id} holds a reserved block: {blocks}")
    return problems


def _audit_indexes(allocator: BlockAllocator) -> list[str]:
    _, cached = allocator.pool.free_blocks()
    indexed = [block for index in allocator.indexes for _, block in index.items()]
    problems = [
        f"block {block} is kept for its content and no prefix leads to it"
        for block in set(cached) - set(indexed)
    ]
    blank, _ = allocator.pool.free_blocks()
    problems += [
        f"a prefix leads to block {block}, which is blank" for block in set(indexed) & set(blank)
    ]
    if len(set(indexed)) != len(indexed):
        problems.append("two prefixes lead to one block")
    return problems
