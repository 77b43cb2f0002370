from __future__ import annotations

import pytest

from dougong.errors import ConfigError
from dougong.kv_cache import resolve_pool_size


def test_an_automatic_size_takes_all_whole_blocks_that_fit() -> None:
    size = resolve_pool_size(available_bytes=1050, block_bytes=100, block_size=16)
    assert (size.num_blocks, size.num_bytes, size.num_token_slots) == (10, 1000, 160)


def test_an_automatic_size_stops_where_no_request_could_use_more() -> None:
    size = resolve_pool_size(
        available_bytes=10_000,
        block_bytes=100,
        block_size=16,
        useful_token_slots=33,
        reserved_blocks=1,
        num_groups=2,
    )
    assert size.num_blocks == 1 + 3 * 2
    assert "max_num_seqs" in size.reason


def test_two_cards_give_two_sizes() -> None:
    sizes = [
        resolve_pool_size(available_bytes=memory, block_bytes=100, block_size=16).num_blocks
        for memory in (1000, 5000)
    ]
    assert sizes == [10, 50]


def test_an_explicit_size_is_obeyed() -> None:
    by_blocks = resolve_pool_size(
        available_bytes=1000, block_bytes=100, block_size=16, asked_blocks=4
    )
    by_bytes = resolve_pool_size(
        available_bytes=1000, block_bytes=100, block_size=16, asked_bytes=450
    )
    assert by_blocks.num_blocks == by_bytes.num_blocks == 4


@pytest.mark.parametrize("asked", [{"asked_blocks": 11}, {"asked_bytes": 1001}])
def test_an_explicit_size_above_memory_is_refused_with_both_numbers(asked: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"available") as caught:
        resolve_pool_size(available_bytes=1000, block_bytes=100, block_size=16, **asked)
    assert "1000" in str(caught.value)
    assert str(next(iter(asked.values()))) in str(caught.value)


@pytest.mark.parametrize("available", [-5, 0, 99, 100])
def test_a_pool_without_room_for_one_token_is_refused(available: int) -> None:
    with pytest.raises(ConfigError, match="hold no token"):
        resolve_pool_size(
            available_bytes=available, block_bytes=100, block_size=16, reserved_blocks=1
        )
