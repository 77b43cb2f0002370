from __future__ import annotations

from typing import Any

import pytest

from dougong.config import EngineArgs, EngineConfig, Resolution, resolve
from dougong.contracts import ConfigChange
from dougong.errors import ConfigError
from tests.support.made_up_cards import GIB, made_up_card, made_up_model

QUOTA = {"memory_quota_bytes": 4 * GIB, "memory_quota_source": "/sys/fs/limits/memory.max"}


def settle(facts: dict[str, Any], **wishes: Any) -> Resolution:
    args = EngineArgs(model="made-up/model", **wishes)
    resolution = resolve(args, made_up_model(), made_up_card(facts=facts), platform="paper")
    if resolution.problems:  # as planning does, with the candidates' reasons
        raise ConfigError("The configuration cannot work:", resolution.problems)
    return resolution


def config(facts: dict[str, Any], **wishes: Any) -> EngineConfig:
    return settle(facts, **wishes).config


def limit_line(facts: dict[str, Any]) -> str:
    return next(d.reason for d in settle(facts).decisions if d.field == "memory_limit")


def test_the_budget_is_a_share_of_the_quota_where_one_is_set() -> None:
    assert config(QUOTA).memory.budget_bytes == int(0.9 * 4 * GIB)


def test_without_a_quota_the_machine_memory_counts() -> None:
    assert config({}).memory.budget_bytes == int(0.9 * 24 * GIB)


def test_the_reason_shows_machine_memory_quota_source_and_which_counted() -> None:
    line = limit_line(QUOTA)
    assert "24.00 GiB" in line
    assert "4.00 GiB" in line
    assert "memory.max" in line
    assert "the quota counts" in line
    assert "the machine memory counts" in limit_line({})


def test_a_quota_above_the_machine_memory_does_not_count() -> None:
    assert "the machine memory counts" in limit_line({"memory_quota_bytes": 1000 * GIB})


def test_half_of_a_shared_memory_is_left_to_the_system() -> None:
    assert config({"is_integrated": True}).memory.utilization == 0.5


def test_memory_that_others_hold_is_not_in_the_budget() -> None:
    assert config({"memory_free_bytes": 5 * GIB}).memory.budget_bytes == 5 * GIB


def test_an_explicit_size_above_the_quota_is_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError) as caught:
        config(QUOTA, kv_cache_memory_bytes=5 * GIB)
    assert "5.00 GiB" in str(caught.value)
    assert "4.00 GiB" in str(caught.value)


def test_an_explicit_number_of_blocks_above_the_quota_is_refused() -> None:
    with pytest.raises(ConfigError, match="KV cache of"):
        config(QUOTA, num_kv_blocks=100_000)


def test_an_explicit_size_is_held_against_the_whole_limit() -> None:
    assert config(QUOTA, kv_cache_memory_bytes=2 * GIB).memory.utilization == 1.0


def test_an_explicit_utilization_is_obeyed() -> None:
    assert config(QUOTA, device_memory_utilization=0.75).memory.budget_bytes == 3 * GIB


@pytest.mark.parametrize("utilization", [0.0, -1.0, 1.5])
def test_an_impossible_utilization_is_refused(utilization: float) -> None:
    with pytest.raises(ConfigError, match="device_memory_utilization"):
        config({}, device_memory_utilization=utilization)


def test_weights_above_the_budget_are_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"1\.86 GiB.*0\.90 GiB"):
        config({"memory_quota_bytes": GIB})


def test_no_free_memory_is_no_budget_and_unknown_is_no_bound() -> None:
    assert config({"memory_free_bytes": None}).memory.budget_bytes == int(0.9 * 24 * GIB)
    with pytest.raises(ConfigError, match=r"0\.00 GiB of it is free"):
        config({"memory_free_bytes": 0})


def test_a_platforms_share_that_an_explicit_size_drops_is_told() -> None:
    change = ConfigChange("device_memory_utilization", 0.5, "its driver needs the rest")
    args = EngineArgs(model="made-up/model", kv_cache_memory_bytes=GIB)
    resolution = resolve(args, made_up_model(), made_up_card(), platform="paper", changes=[change])
    assert resolution.config.memory.utilization == 1.0
    (decision,) = [d for d in resolution.decisions if d.field == "device_memory_utilization"]
    assert decision.author == "core"
    assert "platform paper would have 0.5 (its driver needs the rest)" in decision.reason
    assert not decision.is_default
