from __future__ import annotations

import pytest

from dougong.config.cache import CacheConfig
from dougong.kv_cache import BlockAllocator, BlockTable
from dougong.kv_cache.audit import audit


def make_allocator(
    num_blocks: int = 8,
    *,
    num_groups: int = 1,
    reserved_blocks: int = 0,
    enable_prefix_caching: bool = True,
) -> BlockAllocator:
    return BlockAllocator(
        CacheConfig(
            block_size=4,
            num_blocks=num_blocks,
            num_groups=num_groups,
            reserved_blocks=reserved_blocks,
            enable_prefix_caching=enable_prefix_caching,
        )
    )


def make_cached(allocator: BlockAllocator, tokens: list[int]) -> BlockTable:
    """A table with all of ``tokens`` computed."""
    table = allocator.new_table()
    assert allocator.try_allocate(table, len(tokens), allocator.find_prefix(table, tokens))
    allocator.index_computed(table, tokens, len(tokens))
    return table


def test_blocks_cover_the_tokens_and_no_more() -> None:
    allocator = make_allocator()
    for num_tokens, num_blocks in ((1, 1), (4, 1), (5, 2)):
        table = allocator.new_table()
        assert allocator.try_allocate(table, num_tokens)
        assert len(table.block_ids[0]) == num_blocks
        assert table.num_tokens == 4 * num_blocks
        allocator.free(table)


def test_each_group_has_its_own_blocks_from_the_one_pool() -> None:
    allocator = make_allocator(num_blocks=7, num_groups=3)
    table = allocator.new_table()
    assert allocator.try_allocate(table, 5)
    assert [len(group) for group in table.block_ids] == [2, 2, 2]
    assert len({block for group in table.block_ids for block in group}) == 6
    assert allocator.try_append(table) is None  # one block is left, three are needed
    assert allocator.pool.num_free == 1
    assert audit(allocator, {"a": table}) == []


def test_a_refused_allocation_changes_nothing() -> None:
    allocator = make_allocator(num_blocks=2)
    table = allocator.new_table()
    assert not allocator.try_allocate(table, 9)
    assert table.block_ids == ([],)
    assert allocator.pool.num_free == 2


def test_a_cached_prefix_is_found_up_to_the_first_difference() -> None:
    allocator = make_allocator()
    first = make_cached(allocator, list(range(12)))
    [found] = allocator.find_prefix(allocator.new_table(), [*range(8), 99, 99, 99, 99, 99])
    assert found == first.block_ids[0][:2]


@pytest.mark.parametrize(("num_tokens", "num_found"), [(3, 0), (4, 0), (5, 1), (8, 1), (9, 2)])
def test_the_last_token_is_always_left_to_compute(num_tokens: int, num_found: int) -> None:
    allocator = make_allocator()
    make_cached(allocator, list(range(12)))
    [found] = allocator.find_prefix(allocator.new_table(), list(range(num_tokens)))
    assert len(found) == num_found


def test_blocks_not_yet_computed_are_not_found() -> None:
    allocator = make_allocator()
    table = allocator.new_table()
    allocator.try_allocate(table, 12)
    allocator.index_computed(table, list(range(12)), 7)
    [found] = allocator.find_prefix(allocator.new_table(), list(range(12)))
    assert found == table.block_ids[0][:1]


def test_a_prefix_must_be_there_in_every_group() -> None:
    allocator = make_allocator(num_groups=2)
    table = make_cached(allocator, list(range(8)))
    allocator.indexes[1].forget(table.block_ids[1][0])
    assert allocator.find_prefix(allocator.new_table(), list(range(9))) == ([], [])


def test_nothing_is_found_with_the_prefix_cache_off() -> None:
    allocator = make_allocator(enable_prefix_caching=False)
    make_cached(allocator, list(range(8)))
    assert allocator.find_prefix(allocator.new_table(), list(range(9))) == ((),)


def test_shared_blocks_are_held_twice_and_outlive_either_holder() -> None:
    allocator = make_allocator()
    first = make_cached(allocator, list(range(9)))
    second = make_cached(allocator, list(range(9)))
    assert second.block_ids[0][:2] == first.block_ids[0][:2]
    assert second.block_ids[0][2] != first.block_ids[0][2]
    assert audit(allocator, {"first": first, "second": second}) == []
    allocator.free(first)
    assert audit(allocator, {"second": second}) == []
    assert allocator.usage().num_held_blocks == 3


def test_a_fork_shares_full_blocks_only() -> None:
    allocator = make_allocator(enable_prefix_caching=False)
    parent = allocator.new_table()
    allocator.try_allocate(parent, 11)
    child = allocator.new_table()
    assert allocator.try_allocate(child, 11, allocator.fork(parent, 10))
    assert child.block_ids[0][:2] == parent.block_ids[0][:2]
    assert child.block_ids[0][2] != parent.block_ids[0][2]


def test_cached_hits_count_as_used_once_they_are_taken() -> None:
    allocator = make_allocator(num_blocks=3)
    allocator.free(make_cached(allocator, list(range(8))))
    table = allocator.new_table()
    found = allocator.find_prefix(table, list(range(12)))
    assert allocator.num_free_needed(12, found) == 3
    assert not allocator.try_allocate(table, 13, found)
    assert allocator.try_allocate(table, 12, found)
    assert allocator.pool.num_free == 0


def test_evicted_content_is_found_no_more() -> None:
    allocator = make_allocator(num_blocks=3)
    allocator.free(make_cached(allocator, list(range(8))))
    other = allocator.new_table()
    assert allocator.try_allocate(other, 8)
    [found] = allocator.find_prefix(allocator.new_table(), list(range(9)))
    assert len(found) == 1  # the end of the old prefix went first
    assert allocator.usage().num_evictions == 1


def test_usage_adds_up() -> None:
    allocator = make_allocator(num_blocks=8, reserved_blocks=2)
    table = make_cached(allocator, list(range(10)))
    usage = allocator.usage()
    assert (usage.num_usable_blocks, usage.num_held_blocks, usage.num_cached_blocks) == (6, 3, 0)
    assert usage.held_fraction == 0.5
    allocator.free(table)
    usage = allocator.usage()
    assert (usage.num_held_blocks, usage.num_cached_blocks) == (0, 2)
    allocator.drop_prefixes()
    assert allocator.usage().num_cached_blocks == 0
