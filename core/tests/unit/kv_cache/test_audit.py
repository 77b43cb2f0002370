"""The audit finds what it is there to find."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dougong.config.cache import CacheConfig
from dougong.kv_cache import BlockAllocator, BlockTable
from dougong.kv_cache.audit import audit


def held_twice(allocator: BlockAllocator, table: BlockTable) -> None:
    allocator.pool.share(table.block_ids[0][:1])


def freed_twice(allocator: BlockAllocator, table: BlockTable) -> None:
    table.block_ids[0].extend([])
    allocator.pool._blank.append(allocator.pool._blank[0])


def freed_while_held(allocator: BlockAllocator, table: BlockTable) -> None:
    allocator.pool._blank.append(table.block_ids[0][0])


def lost(allocator: BlockAllocator, table: BlockTable) -> None:
    table.block_ids[0].extend([])
    allocator.pool._blank.pop()


def reserved_freed(allocator: BlockAllocator, table: BlockTable) -> None:
    table.block_ids[0].extend([])
    allocator.pool._blank.append(0)


def listed_twice(allocator: BlockAllocator, table: BlockTable) -> None:
    block = table.block_ids[0][0]
    allocator.pool.share([block])
    table.block_ids[0].append(block)


def room_miscounted(allocator: BlockAllocator, table: BlockTable) -> None:
    table.num_tokens += allocator.block_size


def prefix_left_behind(allocator: BlockAllocator, table: BlockTable) -> None:
    allocator.indexes[0].try_add(b"stale", allocator.pool._blank[0])


def prefix_forgotten(allocator: BlockAllocator, table: BlockTable) -> None:
    block = table.block_ids[0][0]
    allocator.free(table)
    allocator.indexes[0].forget(block)


@pytest.mark.parametrize(
    ("plant", "finding"),
    [
        (held_twice, "counts 2 holders and is in 1 block tables"),
        (freed_twice, "is free 2 times"),
        (freed_while_held, "is free and held"),
        (lost, "is lost"),
        (reserved_freed, "is free and reserved"),
        (listed_twice, "has a block twice"),
        (room_miscounted, "has room for"),
        (prefix_left_behind, "which is blank"),
        (prefix_forgotten, "no prefix leads to it"),
    ],
)
def test_a_planted_fault_is_found(
    plant: Callable[[BlockAllocator, BlockTable], None], finding: str
) -> None:
    allocator = BlockAllocator(CacheConfig(block_size=4, num_blocks=8, reserved_blocks=1))
    table = allocator.new_table()
    tokens = list(range(8))
    allocator.try_allocate(table, len(tokens))
    allocator.index_computed(table, tokens, len(tokens))
    assert audit(allocator, {"r": table}) == []
    plant(allocator, table)
    assert any(finding in problem for problem in audit(allocator, {"r": table}))
