from __future__ import annotations

import dataclasses

import pytest

from dougong.config.cache import UNBOUNDED, CacheConfig
from dougong.errors import ConfigError


def test_reserved_blocks_and_groups_come_off_the_token_slots() -> None:
    config = CacheConfig(block_size=16, num_blocks=10, reserved_blocks=1, num_groups=2)
    assert config.num_usable_blocks == 9
    assert config.num_token_slots == 4 * 16


@pytest.mark.parametrize(
    "wrong",
    [
        {"block_size": 0},
        {"num_groups": -1},
        {"reserved_blocks": -1},
        {"num_blocks": 0},
        {"num_blocks": 2, "reserved_blocks": 2},
        {"num_blocks": 2, "num_groups": 3},
    ],
)
def test_a_cache_that_holds_no_token_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        dataclasses.replace(CacheConfig(block_size=16, num_blocks=8), **wrong)  # type: ignore[arg-type] # wrong on purpose


def test_a_model_that_keeps_no_keys_and_values_needs_no_block() -> None:
    config = CacheConfig(block_size=16, num_blocks=0, num_groups=0)
    assert config.num_usable_blocks == 0
    assert config.num_token_slots == UNBOUNDED


def test_a_resolved_cache_does_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        CacheConfig(block_size=16, num_blocks=8).num_blocks = 9  # type: ignore[misc] # the point
