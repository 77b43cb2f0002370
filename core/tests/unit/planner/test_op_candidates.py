"""Order of candidates, conditions and their reasons."""

from __future__ import annotations

from typing import Any

from dougong.config.op_switches import OpSwitches
from dougong.contracts import KernelReport, Needs
from dougong.describe import CandidateKind
from dougong.planner import FallbackLevel, PassedOver
from tests.unit.planner.op_harness import ONLY_64, kernel, planned, refused, running


def test_classes_come_before_kernels_and_kernels_by_priority() -> None:
    made = planned(
        kernel("norm", "acme/low", priority=-1),
        kernel("norm", "acme/first"),
        kernel("norm", "acme/second"),
        kernel("norm", "acme/high", priority=3),
        kernel("norm", "acme/Class", kind=CandidateKind.OP_CLASS, priority=-9),
    )
    assert running(made)["model.0.norm"] == "acme/Class"
    assert made.ops[0].passed_over == tuple(
        PassedOver(name, "acme/Class comes first")
        for name in ("acme/high", "acme/first", "acme/second", "acme/low")
    )


def test_a_condition_holds_per_place_and_its_failure_is_one_fallback_per_reason() -> None:
    made = planned(kernel("norm", "acme/norm", when=ONLY_64))
    assert running(made)["model.0.norm"] == "acme/norm"
    assert running(made)["model.1.norm"] == "native"
    (fallback,) = made.fallbacks
    assert (fallback.level, fallback.subject) == (FallbackLevel.OP, "op norm")
    assert fallback.reason == "acme/norm: hidden_size 500; takes multiples of 64"
    assert fallback.cost_hint == "plain torch at 1 of 2 places"
    assert made.unmatched == ()


def test_a_reason_names_the_conversion_that_caused_it() -> None:
    made = planned(
        kernel("norm", "acme/norm", when=ONLY_64),
        needs={"provenance": {"hidden_size": "cut by a pruning tool"}},
    )
    assert "multiples of 64 (cut by a pruning tool)" in made.fallbacks[0].reason


def test_a_library_counts_once_it_was_tried() -> None:
    op = kernel("norm", "acme/norm", when=Needs(library="kit"))
    assert running(planned(op))["model.0.norm"] == "acme/norm"
    loaded = {"kernels": KernelReport(loaded=("kit 2.1",))}
    assert running(planned(op, candidates=loaded))["model.0.norm"] == "acme/norm"
    missing = {"kernels": KernelReport(missing={"kit": "no such file"})}
    made = planned(op, candidates=missing)
    assert running(made)["model.0.norm"] == "native"
    assert made.fallbacks[0].reason == "acme/norm: needs kit: no such file"
    assert made.kernels_missing == {"kit": "no such file"}


def test_device_facts_and_switches_of_the_environment_are_conditions() -> None:
    op = kernel(
        "norm", "acme/norm", when=Needs(driver=">=5.1", features={"mm.x"}, env={"ACME": "1"})
    )
    known: dict[str, Any] = {
        "facts": {"driver_version": "5.2"},
        "claims": {"features": frozenset({"mm.x"})},
        "environment": {"ACME": "1"},
    }
    assert running(planned(op, **known))["model.0.norm"] == "acme/norm"
    reason = planned(op, **(known | {"environment": {}})).fallbacks[0].reason
    assert "available, off: set ACME=1" in reason


def test_what_failed_at_its_first_use_is_passed_over_and_is_a_fallback() -> None:
    failed = {"failed": {"acme/norm": "illegal instruction"}}
    made = planned(kernel("norm", "acme/norm"), candidates=failed)
    assert running(made)["model.0.norm"] == "native"
    assert made.fallbacks[0].reason == "acme/norm: failed at its first use: illegal instruction"
    next_one = planned(kernel("norm", "acme/norm"), kernel("norm", "acme/other"), candidates=failed)
    assert running(next_one)["model.0.norm"] == "acme/other"
    assert next_one.fallbacks == ()
    told = refused(
        kernel("norm", "acme/norm"),
        candidates=failed,
        switches=OpSwitches(implementations={"norm": "acme/norm"}),
    )
    assert "--op norm=acme/norm cannot be obeyed at 2 of 2 places" in told
