"""Weights in blocks: which of them stay, who reads them, and why the others do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dougong.config.op_switches import OpSwitches
from dougong.contracts import AtMost, ConfigError, Needs, OneOf, StoredWeights
from dougong.describe import OpSite, WeightNeed
from dougong.planner import ExecutionPlan
from tests.unit.planner.op_harness import kernel, planned, running
from tests.unit.planner.paper import site

BLOCKS = Needs(weight_format=OneOf("q4_1", "q8_0"))
PLAIN = Needs(weight_format="bfloat16")
Q4_1 = WeightNeed(format="q4_1", is_quantized=True, is_readable=True, num_bytes=20 * 1000)
LINEAR = kernel("linear", "acme/linear4", when=BLOCKS)
READERS = (
    LINEAR,
    kernel("slot", "acme/slot4", when=BLOCKS),
    kernel("head", "acme/head4", when=BLOCKS),
    kernel("table", "acme/table4", when=BLOCKS),
)


def stored(key: str, path: str, weight: str = "", name: str = "q4_1", **more: Any) -> OpSite:
    made = site(key, path, hidden_size=64, weight_format="bfloat16", **more)
    return replace(made, weight=weight or f"{path}.weight", stored_as=name)


ONE = (stored("linear", "a", in_features=64, out_features=32),)
SLOT = (stored("slot", "mlp", "mlp.linear.weight"), stored("linear", "mlp.linear"))
TIED = (stored("table", "embed", vocab_size=10), stored("head", "head", "embed.weight"))


def made(*ops: Any, sites: tuple[OpSite, ...] = ONE, **changes: Any) -> ExecutionPlan:
    return planned(*ops, sites=sites, needs={"weights": (Q4_1,)}, **changes)


def why(plan: ExecutionPlan) -> str:
    (weights,) = plan.weights
    assert weights.where == "dequantized at load"
    assert plan.stored == plan.rank_plan.stored == ()
    return weights.reason


def test_a_weight_stays_where_a_kernel_reads_it_as_it_is() -> None:
    plan = made(LINEAR)
    (weights,) = plan.weights
    assert (weights.where, weights.kernel, weights.kept_share) == (
        "as stored",
        "acme/linear4",
        1.0,
    )
    assert plan.fallbacks == ()
    assert plan.rank_plan.stored == (StoredWeights(format="q4_1", paths=("a",)),)
    assert plan.ops[0].properties["weight_format"] == "q4_1"
    assert running(plan) == {"a": "acme/linear4"}


def test_an_implementation_that_does_not_name_the_format_is_not_handed_such_a_weight() -> None:
    anything = kernel("linear", "acme/any")
    assert why(made(anything)) == "platform paper has no kernel for q4_1"
    plan = made(anything, LINEAR)
    assert running(plan) == {"a": "acme/linear4"}
    (passed,) = plan.ops[0].passed_over
    assert passed.reason == "takes plain weights; these stay in q4_1"


def test_one_that_names_other_formats_gives_no_reason_and_one_that_cannot_does() -> None:
    assert why(made(kernel("linear", "acme/plain", when=PLAIN))) == (
        "platform paper has no kernel for q4_1"
    )
    needs = Needs(weight_format="q4_1", features=("int4",))
    assert why(made(kernel("linear", "acme/linear4", when=needs))) == (
        "acme/linear4: needs int4, which this device does not claim"
    )


def test_a_kernel_for_some_steps_only_is_not_enough() -> None:
    few = kernel("linear", "acme/few", when=BLOCKS, tokens=AtMost(8))
    assert why(made(few))
    plan = made(few, LINEAR)
    assert plan.stored
    assert running(plan) == {"a": "acme/few<=8 acme/linear4"} or running(plan) == {
        "a": "acme/linear4"
    }


def test_a_slot_reads_for_its_part_and_a_part_for_its_slot() -> None:
    plan = made(*READERS, sites=SLOT)
    assert running(plan) == {"mlp": "acme/slot4", "mlp.linear": "[slot]"}
    assert plan.stored == (StoredWeights(format="q4_1", paths=("mlp",)),)
    plan = made(LINEAR, sites=SLOT)
    assert running(plan) == {"mlp": "native", "mlp.linear": "acme/linear4"}
    assert plan.stored
    assert why(made(kernel("slot", "acme/slot", when=PLAIN), sites=SLOT))


def test_all_that_share_a_weight_must_read_it() -> None:
    assert made(*READERS, sites=TIED).stored
    assert why(made(kernel("head", "acme/head4", when=BLOCKS), sites=TIED))


def test_some_may_stay_and_others_not_each_with_its_reason() -> None:
    sites = (*ONE, stored("head", "head", vocab_size=96))
    plan = made(LINEAR, sites=sites)
    (weights,) = plan.weights
    assert weights.where == "partly as stored"
    assert weights.kept_share == pytest.approx(64 * 64 * 32 / (64 * 64 * 32 + 64 * 96))
    assert weights.reason == "1 of them: platform paper has no kernel for q4_1"
    (fallback,) = plan.fallbacks
    assert fallback.reason == weights.reason
    with pytest.raises(ConfigError, match="weights q4_1"):
        made(LINEAR, sites=sites, is_strict=True)


def test_what_the_user_wants_plain_is_plain() -> None:
    plain = kernel("linear", "acme/plain", when=PLAIN)
    for switches, reason in (
        (OpSwitches(implementations={"linear": "native"}), "--op linear=native was asked for"),
        (OpSwitches(is_on=False), "--custom-ops none was asked for"),
        (
            OpSwitches(implementations={"linear": "acme/plain"}),
            "--op linear=acme/plain was asked for, and it takes plain weights",
        ),
    ):
        assert reason in why(made(LINEAR, plain, switches=switches))
    asked = OpSwitches(implementations={"linear": "native"})
    plan = made(*READERS, sites=SLOT, switches=asked)
    assert running(plan) == {"mlp": "native", "mlp.linear": "native"}
    assert why(plan), "the slot would leave its part to plain torch"


def test_a_reader_that_failed_is_planned_around() -> None:
    plan = made(LINEAR, candidates={"failed": {"acme/linear4": "it raised"}})
    assert "failed at its first use: it raised" in why(plan)
