"""Fused slots, groups of ops, registrations that nothing could use."""

from __future__ import annotations

import pytest

from dougong.config.op_switches import OpSwitches
from dougong.contracts import AtMost, MultipleOf, Needs
from dougong.planner import PassedOver
from tests.unit.planner.op_harness import FUSED, ONLY_64, kernel, planned, running
from tests.unit.planner.paper import site


def test_the_same_reason_at_many_places_is_told_once() -> None:
    many = tuple(site("norm", f"model.{index}", hidden_size=500) for index in range(40))
    made = planned(kernel("norm", "acme/norm", when=ONLY_64), sites=many)
    assert len(made.fallbacks) == 1
    assert made.ops[0].count == 40


def test_registrations_that_no_op_could_use_are_told_and_are_no_error() -> None:
    made = planned(
        kernel("swirl", "acme/swirl"),
        kernel("norm", "acme/norm", when=Needs(hidden_size=MultipleOf(7))),
        kernel("act", "acme/act"),
    )
    assert made.unmatched == (
        PassedOver("acme/swirl", "this model has no op swirl"),
        PassedOver(
            "acme/norm",
            "hidden_size 512; takes multiples of 7 or hidden_size 500; takes multiples of 7",
        ),
    )


def test_a_fused_slot_that_is_not_native_does_the_work_of_the_ops_inside_it() -> None:
    made = planned(kernel("slot", "acme/fused"), kernel("norm", "acme/norm"), sites=FUSED)
    assert running(made) == {
        "model.0.slot": "acme/fused",
        "model.0.slot.norm": "[slot]",
        "model.0.slot.act": "[slot]",
        "model.norm": "acme/norm",
    }
    assert made.implementations() == {"slot": {"acme/fused": 1}, "norm": {"acme/norm": 1}}
    inside = [one for one in made.ops if one.inside]
    assert all(one.is_native for one in inside)
    assert inside[0].passed_over == (PassedOver("acme/norm", "slot does its work"),)


def test_a_fused_slot_for_some_steps_only_leaves_its_ops_to_run_in_the_others() -> None:
    made = planned(
        kernel("slot", "acme/fused", tokens=AtMost(8)),
        kernel("norm", "acme/norm", when=Needs(hidden_size=7)),
        sites=FUSED,
    )
    assert running(made)["model.0.slot"] == "acme/fused<=8 native"
    assert running(made)["model.0.slot.norm"] == "native"
    assert [one.subject for one in made.fallbacks] == ["op norm"]


def test_ops_inside_a_fused_slot_need_not_meet_their_own_conditions() -> None:
    made = planned(
        kernel("slot", "acme/fused"),
        kernel("act", "acme/act", when=Needs(dtype="float16")),
        sites=FUSED,
    )
    assert made.fallbacks == ()
    assert running(made)["model.0.slot.act"] == "[slot]"


@pytest.mark.parametrize(
    ("switches", "told"),
    [
        (OpSwitches(off=frozenset({"norm"})), "--custom-ops -norm was asked for"),
        (OpSwitches(implementations={"norm": "native"}), "--op norm=native was asked for"),
        (OpSwitches(implementations={"norm": "acme/norm"}), "--op norm=acme/norm was asked for"),
        (OpSwitches(required=frozenset({"norm"})), "--custom-ops +norm was asked for"),
    ],
)
def test_a_fused_slot_leaves_an_op_alone_for_which_the_user_said_what_runs(
    switches: OpSwitches, told: str
) -> None:
    made = planned(
        kernel("slot", "acme/fused"),
        kernel("norm", "acme/norm"),
        sites=FUSED,
        switches=switches,
    )
    runs_norm = "+norm" in told or "acme/norm" in told
    assert running(made)["model.0.slot"] == "native"
    assert running(made)["model.0.slot.norm"] == ("acme/norm" if runs_norm else "native")
    assert told in made.ops[0].passed_over[0].reason
    assert made.fallbacks == ()


@pytest.mark.parametrize(
    "switches",
    [OpSwitches(required=frozenset({"slot"})), OpSwitches(implementations={"slot": "acme/fused"})],
)
def test_what_was_said_of_a_slot_is_obeyed_around_another_of_its_kind(switches: OpSwitches) -> None:
    nested = (site("slot", "a"), site("slot", "a.b"))
    made = planned(kernel("slot", "acme/fused"), sites=nested, switches=switches)
    assert running(made) == {"a": "acme/fused", "a.b": "[slot]"}


def test_the_outermost_of_nested_slots_owns_what_is_inside() -> None:
    nested = (site("slot", "a"), site("slot", "a.b"), site("norm", "a.b.c", hidden_size=64))
    made = planned(kernel("slot", "acme/fused"), sites=nested)
    assert running(made) == {"a": "acme/fused", "a.b": "[slot]", "a.b.c": "[slot]"}


def test_a_path_that_only_begins_alike_is_not_inside() -> None:
    sites = (site("slot", "a.slot"), site("norm", "a.slot2.norm", hidden_size=64))
    made = planned(kernel("slot", "acme/fused"), sites=sites)
    assert running(made)["a.slot2.norm"] == "native"


def test_before_an_outline_was_made_nothing_is_said_of_ops() -> None:
    made = planned(
        kernel("norm", "acme/norm"), sites=(), switches=OpSwitches(required=frozenset({"norm"}))
    )
    assert made.ops == ()
    assert made.unmatched == ()


def test_the_plan_says_who_brought_an_implementation() -> None:
    assert planned(kernel("norm", "acme/norm")).origins == {"acme/norm": "acme 1.0"}
