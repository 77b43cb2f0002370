from __future__ import annotations

from typing import Any

import pytest

from dougong.config import (
    CommandDefault,
    Decision,
    EngineArgs,
    Resolution,
    resolve,
    view_of_wishes,
)
from dougong.contracts import Capabilities, ConfigChange
from dougong.errors import ConfigError, PluginError
from tests.support.made_up_cards import GIB, made_up_card, made_up_model


def settle(card: Capabilities | None = None, changes: Any = (), **wishes: Any) -> Resolution:
    args = EngineArgs(model="made-up/model", **wishes)
    card = card or made_up_card()
    resolution = resolve(args, made_up_model(), card, platform="paper", changes=changes)
    if resolution.problems:  # as planning does, with the candidates' reasons
        raise ConfigError("The configuration cannot work:", resolution.problems)
    return resolution


def decision(resolution: Resolution, field: str) -> Decision:
    (found,) = [item for item in resolution.decisions if item.field == field]
    return found


def test_every_option_has_one_decision_with_an_author_and_a_reason() -> None:
    resolution = settle(max_num_seqs=7)
    fields = [item.field for item in resolution.decisions]
    assert len(fields) == len(set(fields))
    assert all(item.author and item.reason for item in resolution.decisions)
    assert decision(resolution, "max_num_seqs").author == "user"
    assert decision(resolution, "max_model_len").author == "checkpoint"
    assert decision(resolution, "block_size").author == "platform paper"
    assert decision(resolution, "max_num_batched_tokens").author == "core"


def test_two_cards_give_one_code_two_results() -> None:
    small = settle(
        made_up_card(
            facts={"memory_total_bytes": 4 * GIB, "memory_free_bytes": 4 * GIB},
            claims={"memory_bandwidth": 100e9, "compute_rate": {"bfloat16": 2e12}},
        )
    ).config.scheduler
    large = settle(
        made_up_card(
            facts={"memory_total_bytes": 80 * GIB, "memory_free_bytes": 80 * GIB},
            claims={"memory_bandwidth": 3e12, "compute_rate": {"bfloat16": 900e12}},
        )
    ).config.scheduler
    assert small.max_num_seqs < large.max_num_seqs
    assert small.max_num_batched_tokens < large.max_num_batched_tokens


def test_the_same_card_gives_the_same_result() -> None:
    assert settle() == settle()


def test_explicit_values_are_obeyed() -> None:
    config = settle(
        dtype="float32",
        max_model_len=100,
        block_size=32,
        max_num_seqs=3,
        max_num_batched_tokens=17,
        enable_prefix_caching=False,
        scheduling_policy="priority",
        enforce_eager=True,
        seed=5,
    ).config
    view = config.view()
    assert (view.dtype, view.max_model_len, view.block_size) == ("float32", 100, 32)
    assert (view.max_num_seqs, view.max_num_batched_tokens) == (3, 17)
    assert view.enable_prefix_caching is False
    assert view.enforce_eager is True
    assert view.seed == 5
    assert config.scheduler.policy == "priority"


def test_a_small_token_budget_bounds_an_unset_number_of_requests() -> None:
    assert settle(max_num_batched_tokens=4).config.scheduler.max_num_seqs == 4


def test_all_problems_come_in_one_error() -> None:
    with pytest.raises(ConfigError) as caught:
        settle(dtype="float16", block_size=48, max_model_len=10_000)
    assert len(caught.value.problems) == 3
    message = str(caught.value)
    assert "dtype=float16" in message
    assert "block_size=48" in message
    assert "max_model_len=10000" in message
    assert "4096" in message


@pytest.mark.parametrize(
    "name", ["max_num_seqs", "block_size", "num_kv_blocks", "max_num_batched_tokens"]
)
def test_a_size_of_zero_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}=0"):
        settle(None, (), **{name: 0})


def test_a_kv_size_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="twice"):
        settle(num_kv_blocks=10, kv_cache_memory_bytes=GIB)


def test_an_unknown_scheduling_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="fcfs, priority"):
        settle(scheduling_policy="fair")


def test_what_a_device_does_not_claim_leaves_a_configuration_to_plan_with() -> None:
    args = EngineArgs(model="m", dtype="float16", kv_cache_dtype="fp8", block_size=48)
    card = made_up_card(claims={"dtypes": ("bfloat16",), "kv_dtypes": ("bfloat16",)})
    resolution = resolve(args, made_up_model(), card, platform="paper")
    assert len(resolution.problems) == 3
    assert resolution.config.compute.dtype == "float16"
    assert resolution.config.kv_cache.dtype == "float8_e4m3fn"
    assert resolution.config.kv_cache.block_size == 48


def test_what_cannot_be_planned_with_is_told_with_what_is_not_claimed() -> None:
    args = EngineArgs(model="m", block_size=48, scheduling_policy="fair")  # type: ignore[arg-type]
    resolution = resolve(args, made_up_model(), made_up_card(), platform="paper")
    assert len(resolution.problems) == 2
    assert resolution.config.scheduler.policy == "fcfs"


STAND_INS: dict[str, tuple[dict[str, Any], str]] = {
    "max_num_seqs": ({"max_num_seqs": 0}, "max_num_seqs=0"),
    "dtype": ({"dtype": "int4"}, "dtype=int4"),
    "kv_cache_dtype": ({"kv_cache_dtype": "int4"}, "kv_cache_dtype=int4"),
    "max_model_len": ({"max_model_len": 10**6}, "max_model_len=1000000"),
    "num_kv_blocks": ({"num_kv_blocks": 10**8}, "A KV cache of"),
    "device_memory_utilization": ({"device_memory_utilization": 7}, "utilization=7"),
    "max_num_batched_tokens": ({"max_num_batched_tokens": 3, "max_num_seqs": 9}, "is below"),
    "kv_cache_memory_bytes": ({"num_kv_blocks": 9, "kv_cache_memory_bytes": GIB}, "twice"),
}  # fmt: skip


@pytest.mark.parametrize("name", STAND_INS)
def test_a_value_that_nobody_can_plan_with_has_a_stand_in_and_is_told(name: str) -> None:
    wishes, told = STAND_INS[name]
    args = EngineArgs(model="m", **wishes)
    resolution = resolve(args, made_up_model(), made_up_card(), platform="paper")
    (problem,) = resolution.problems
    assert told in problem
    plain = resolve(EngineArgs(model="m"), made_up_model(), made_up_card(), platform="paper").config
    if name not in ("max_num_batched_tokens", "kv_cache_memory_bytes"):
        assert resolution.config.compute == plain.compute
        assert resolution.config.scheduler == plain.scheduler
        assert resolution.config.kv_cache == plain.kv_cache


def test_every_value_that_nobody_can_plan_with_is_told_at_once() -> None:
    args = EngineArgs(
        model="m", dtype="int4", max_model_len=10**6, num_kv_blocks=10**8, max_num_seqs=0
    )
    resolution = resolve(args, made_up_model(), made_up_card(), platform="paper")
    assert len(resolution.problems) == 4


def test_what_a_platform_proposes_and_does_not_claim_is_its_fault_at_once() -> None:
    with pytest.raises(PluginError, match="block_size=48"):
        settle(changes=[ConfigChange("block_size", 48, "its kernel reads 48 at once")])


def test_a_platforms_proposal_is_applied_and_signed() -> None:
    change = ConfigChange("block_size", 32, "its kernel reads 32 tokens at once")
    resolution = settle(changes=[change])
    assert resolution.config.kv_cache.block_size == 32
    assert decision(resolution, "block_size").author == "platform paper"
    assert decision(resolution, "block_size").reason == change.reason


def test_a_proposal_never_goes_over_an_explicit_value() -> None:
    change = ConfigChange("block_size", 32, "its kernel reads 32 tokens at once")
    with pytest.raises(ConfigError) as caught:
        settle(changes=[change], block_size=16)
    message = str(caught.value)
    assert "block_size=16" in message
    assert "platform paper" in message
    assert "block_size=32" in message
    assert change.reason in message


def test_a_proposal_equal_to_the_explicit_value_stays_the_users() -> None:
    resolution = settle(changes=[ConfigChange("block_size", 32, "why")], block_size=32)
    assert decision(resolution, "block_size").author == "user"


@pytest.mark.parametrize(
    "changes",
    [
        [ConfigChange("model", "other", "why")],
        [ConfigChange("block_size", "16", "why")],
        [ConfigChange("max_num_seqs", True, "why")],
        [ConfigChange("block_size", 16, "why"), ConfigChange("block_size", 32, "why")],
    ],
)
def test_a_malformed_proposal_is_the_plugins_fault(changes: list[ConfigChange]) -> None:
    with pytest.raises(PluginError, match="paper"):
        settle(changes=changes)


def test_the_platform_sees_unset_values_as_none_and_knows_the_explicit_ones() -> None:
    args = EngineArgs(model="m", dtype="auto", block_size=16)
    view = view_of_wishes(args, made_up_model())
    assert view.dtype is None
    assert view.max_num_seqs is None
    assert view.explicit >= {"block_size"}
    assert "dtype" not in view.explicit


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_num_seqs", 0),
        ("block_size", 48),
        ("dtype", "float16"),
        ("dtype", "int3"),
        ("kv_cache_dtype", "fp8"),
        ("max_model_len", 10_000),
        ("device_memory_utilization", 1.5),
        ("num_kv_blocks", 10**7),
    ],
)
def test_a_proposal_that_cannot_work_is_the_platforms_fault_and_never_the_users(
    field: str, value: object
) -> None:
    proposed = f"platform paper proposes {field}={value} .why."
    with pytest.raises(PluginError, match=proposed) as caught:
        settle(changes=[ConfigChange(field, value, "why")])
    assert caught.value.plugin == "paper"


def test_two_proposals_that_contradict_each_other_are_the_platforms_fault() -> None:
    changes = [
        ConfigChange("max_num_seqs", 32, "a"),
        ConfigChange("max_num_batched_tokens", 16, "b"),
    ]
    with pytest.raises(PluginError, match="max_num_batched_tokens=16"):
        settle(changes=changes)


def test_a_proposal_against_the_users_value_names_both() -> None:
    changes = [ConfigChange("max_num_batched_tokens", 16, "its buffers hold so many")]
    with pytest.raises(ConfigError) as caught:
        settle(changes=changes, max_num_seqs=32)
    message = str(caught.value)
    assert "max_num_batched_tokens=16 [platform paper: its buffers hold so many]" in message
    assert "max_num_seqs=32 [user: asked for]" in message
    with pytest.raises(ConfigError, match=r"num_kv_blocks=9 \[platform paper: why\]"):
        settle(changes=[ConfigChange("num_kv_blocks", 9, "why")], kv_cache_memory_bytes=GIB)


def test_a_commands_default_gives_way_to_what_the_user_set() -> None:
    default = CommandDefault("max_num_seqs", 32, "command bench", "all 32 at once")
    args = EngineArgs(model="made-up/model", max_num_batched_tokens=16, defaults=(default,))
    resolution = resolve(args, made_up_model(), made_up_card(), platform="paper")
    assert resolution.config.scheduler.max_num_seqs == 16
    assert decision(resolution, "max_num_seqs").author == "command bench"
    assert "max_num_batched_tokens=16" in decision(resolution, "max_num_seqs").reason


def test_a_commands_default_is_not_shown_to_the_platform_as_decided() -> None:
    default = CommandDefault("max_num_seqs", 32, "command bench", "all 32 at once")
    view = view_of_wishes(EngineArgs(model="m", defaults=(default,)), made_up_model())
    assert view.max_num_seqs is None
    assert "max_num_seqs" not in view.explicit


def test_only_what_nobody_decided_is_marked_as_a_default() -> None:
    marked = {item.field for item in settle(enforce_eager=True).decisions if item.is_default}
    assert marked >= {"seed", "scheduling_policy", "enable_prefix_caching"}
    assert not marked & {"enforce_eager", "max_num_seqs", "block_size", "memory_limit"}
