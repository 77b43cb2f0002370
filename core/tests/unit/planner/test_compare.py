from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dougong.config import Decision
from dougong.contracts import GraphAssignment
from dougong.describe import WeightNeed
from dougong.planner import ExecutionPlan, ExecutionWay
from dougong.planner.compare import differences
from dougong.planner.record import plan_from_json, plan_to_json
from tests.unit.planner.compare_harness import planned, told
from tests.unit.planner.paper import DECISIONS


def test_a_plan_equals_itself_also_after_it_was_saved() -> None:
    made = planned().with_decisions((*DECISIONS, Decision("op", ("a", "b"), "user", "asked for")))
    assert differences(made, made) == ()
    assert differences(plan_from_json(plan_to_json(made)), made) == ()


def volatile(made: ExecutionPlan) -> ExecutionPlan:
    decisions = tuple(
        replace(one, value=1, reason="less") if one.field == "memory_limit" else one
        for one in made.decisions
    )
    kv_blocks = Decision("num_kv_blocks", 5, "core", "all that is free")
    return replace(
        made,
        device="Paper 1 rev B",
        platform_reasons=("another wording",),
        kv_cache=replace(made.kv_cache, num_blocks=3),
        mode=replace(made.mode, reason="another wording"),
        attention=tuple(replace(one, passed_over=(), author="x") for one in made.attention),
        choices={**made.choices, "plan": "x.json", "strict": True},
        decisions=(*decisions, kv_blocks),
    )


def test_what_is_measured_anew_and_wording_do_not_count() -> None:
    made = planned()
    assert differences(made, volatile(made)) == ()
    assert differences(volatile(made), made) == ()


def with_decision(field: str, value: Any, author: str = "core") -> Callable[..., ExecutionPlan]:
    def change(made: ExecutionPlan) -> ExecutionPlan:
        return made.with_decisions((*made.decisions, Decision(field, value, author, "because")))

    return change


@pytest.mark.parametrize(
    ("change", "field", "old", "new"),
    [
        (lambda made: replace(made, platform="cpu"), "platform", "paper", "cpu"),
        (lambda made: replace(made, platform_wheel="p 2"), "platform wheel", "none", "p 2"),
        (lambda made: replace(made, arch="paper2"), "device family", "paper1", "paper2"),
        (lambda made: replace(made, dtype="float32"), "dtype", "bfloat16", "float32"),
        (lambda made: replace(made, model="other"), "model", "paper/model", "other"),
        (
            lambda made: replace(made, is_generic=True),
            "whether the platform knows the device family",
            "recognised",
            "not recognised",
        ),
        (
            lambda made: replace(made, mode=replace(made.mode, name="full")),
            "captured",
            "none",
            "full",
        ),
        (
            lambda made: replace(made, execution=ExecutionWay("eager", "asked for")),
            "execution",
            "flat",
            "eager",
        ),
        (
            lambda made: replace(
                made,
                mode=replace(made.mode, graphs=GraphAssignment(decode=(1, 2), max_bytes=5)),
            ),
            "decode graphs",
            "none",
            "1, 2",
        ),
        (
            lambda made: replace(made, kv_cache=replace(made.kv_cache, dtype="int8")),
            "KV dtype",
            "bfloat16",
            "int8",
        ),
        (
            lambda made: replace(made, origins={"acme/norm": "acme 1.1"}),
            "wheel of acme/norm",
            "acme 1.0",
            "acme 1.1",
        ),
        (
            lambda made: replace(made, kernels_loaded=("kit 3",)),
            "kernel libraries",
            "kit 2",
            "kit 3",
        ),
    ],
)
def test_what_matters_is_told_by_name_with_both_values(
    change: Callable[[ExecutionPlan], ExecutionPlan], field: str, old: str, new: str
) -> None:
    made = planned()
    assert [(one.field, one.old, one.new) for one in differences(made, change(made))] == [
        (field, old, new)
    ]


def test_options_are_compared_by_value_and_those_fixed_by_the_user_always() -> None:
    made = planned()
    short, long = (with_decision("max_model_len", value)(made) for value in (128, 256))
    assert told(short, long) == ["max_model_len was 128 and is 256: because"]
    assert told(short, made) == ["max_model_len was 128 and is none"]
    assert told(made, short) == ["max_model_len was none and is 128: because"]
    few, many = (with_decision("num_kv_blocks", value, "user")(made) for value in (7, 9))
    assert told(few, many) == ["num_kv_blocks was 7 and is 9: because"]
    assert told(replace(made, choices={"num_kv_blocks": 7}), made) == [
        "num_kv_blocks was 7 and is none"
    ]


def test_decisions_are_walked_on_both_sides() -> None:
    made = with_decision("seed", 3)(with_decision("max_num_seqs", 8)(planned()))
    emptied = made.with_decisions(())
    for old, new in ((emptied, made), (made, emptied)):
        assert [one.field for one in differences(old, new)] == ["max_num_seqs", "seed"]


def test_options_given_anew_are_told_but_for_sizes_of_memory() -> None:
    made = planned()
    for name in ("num_kv_blocks", "kv_cache_memory_bytes", "device_memory_utilization", "devices"):
        assert told(made, replace(made, choices={**made.choices, name: 1})) == []
    assert told(made, replace(made, choices={**made.choices, "of_a_plugin": 1})) == [
        "of_a_plugin was none and is 1"
    ]


@pytest.mark.parametrize(
    ("field", "one", "other"),
    [
        ("op", "a=x, b=y", "b=y, a=x"),
        ("custom_ops", "all,-b,+a", "+a,-b"),
    ],
)
def test_the_same_in_other_words_is_no_difference(field: str, one: str, other: str) -> None:
    made = planned()
    old, new = (with_decision(field, value, "user")(made) for value in (one, other))
    assert told(old, new) == []


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_the_share_of_memory_follows_from_what_was_asked_for(share: float) -> None:
    made = planned()
    old = with_decision("device_memory_utilization", 0.9)(made)
    assert told(old, with_decision("device_memory_utilization", share)(made)) == []
    fixed = with_decision("device_memory_utilization", 0.9, "user")(made)
    assert len(told(fixed, with_decision("device_memory_utilization", share)(made))) == 1


def test_the_checkpoint_is_compared_as_far_as_both_know_it() -> None:
    made = replace(planned(), checkpoint={"source": "/a", "config": "1", "tensors": "2"})

    def with_other(**values: str | None) -> list[str]:
        checkpoint = {**made.checkpoint, **values}
        known = {name: value for name, value in checkpoint.items() if value is not None}
        return told(made, replace(made, checkpoint=known))

    assert with_other() == []
    assert with_other(tensors=None) == []
    assert with_other(tensors="3") == ["digest of the tensors was 2 and is 3"]
    assert with_other(config="3") == ["digest of the config was 1 and is 3"]
    assert with_other(revision="abc") == ["revision was none and is abc"]
    assert with_other(source="/b") == ["model was /a and is /b"]
    assert told(replace(made, model="./a"), replace(made, model="/a")) == []
    assert told(replace(made, checkpoint={}), made) == ["digest of the config was none and is 1"]


def test_weights_are_compared_by_format() -> None:
    q4 = WeightNeed(format="q4_1", is_quantized=True, is_readable=True)
    old = planned()
    new = planned(needs={"weights": (q4,)})
    assert told(old, new)[:2] == [
        "weights bfloat16 was as stored, computed as bfloat16 and is not in the checkpoint",
        "weights q4_1 was not in the checkpoint and is dequantized at load, computed as bfloat16: "
        "platform paper has no kernel for q4_1",
    ]
