from __future__ import annotations

import pytest

from dougong.kv_cache import BlockPool


def test_allocation_takes_all_or_nothing() -> None:
    pool = BlockPool(4)
    assert pool.try_allocate(5) is None
    assert pool.num_free == 4
    taken = pool.try_allocate(4)
    assert taken is not None
    assert sorted(taken) == [0, 1, 2, 3]
    assert pool.try_allocate(1) is None


def test_reserved_blocks_are_never_handed_out() -> None:
    pool = BlockPool(4, reserved_blocks=1)
    assert pool.num_usable == 3
    assert sorted(pool.try_allocate(3) or []) == [1, 2, 3]
    assert pool.try_allocate(1) is None


def test_a_shared_block_is_free_only_when_its_last_holder_releases_it() -> None:
    pool = BlockPool(1)
    blocks = pool.try_allocate(1)
    assert blocks == [0]
    pool.share(blocks)
    assert pool.reference_count(0) == 2
    pool.release(blocks)
    assert pool.num_free == 0
    pool.release(blocks)
    assert pool.num_free == 1


def test_releasing_what_nobody_holds_is_our_mistake() -> None:
    pool = BlockPool(2)
    blocks = pool.try_allocate(1)
    assert blocks is not None
    pool.release(blocks)
    with pytest.raises(AssertionError, match="nobody holds it"):
        pool.release(blocks)


def test_blank_blocks_go_before_cached_ones() -> None:
    evicted: list[int] = []
    pool = BlockPool(3, on_evict=evicted.append)
    first = pool.try_allocate(1)
    assert first is not None
    pool.mark_cacheable(first[0])
    pool.release(first)
    assert first[0] not in (pool.try_allocate(2) or [])
    assert evicted == []
    assert pool.try_allocate(1) == first
    assert evicted == first


def test_the_least_recently_used_prefix_is_evicted_first_and_from_its_end() -> None:
    evicted: list[int] = []
    pool = BlockPool(4, on_evict=evicted.append)
    old, new = pool.try_allocate(2), pool.try_allocate(2)
    assert old is not None
    assert new is not None
    for block in [*old, *new]:
        pool.mark_cacheable(block)
    pool.release(old)
    pool.release(new)
    pool.share(old)  # used again, so now the more recent one
    pool.release(old)
    pool.try_allocate(4)
    assert evicted == [*reversed(new), *reversed(old)]
    assert pool.num_evictions == 4


def test_a_cached_block_that_is_shared_again_is_no_longer_free() -> None:
    pool = BlockPool(2)
    blocks = pool.try_allocate(1)
    assert blocks is not None
    pool.mark_cacheable(blocks[0])
    pool.release(blocks)
    assert pool.num_unheld(blocks) == 1
    pool.share(blocks)
    assert pool.num_unheld(blocks) == 0
    assert (pool.num_free, pool.num_cached) == (1, 0)


def test_an_evicted_block_is_blank_afterwards() -> None:
    pool = BlockPool(1)
    blocks = pool.try_allocate(1)
    assert blocks == [0]
    pool.mark_cacheable(0)
    pool.release(blocks)
    pool.drop_cached()
    assert pool.free_blocks() == ((0,), ())
