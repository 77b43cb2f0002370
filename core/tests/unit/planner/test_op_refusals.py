"""Switches that cannot be obeyed."""

from __future__ import annotations

import pytest

from dougong.config.op_switches import OpSwitches
from dougong.contracts import Needs
from tests.unit.planner.op_harness import FUSED, ONLY_64, kernel, refused


def test_an_explicit_implementation_that_cannot_run_everywhere_is_refused() -> None:
    told = refused(
        kernel("norm", "acme/norm", when=ONLY_64),
        kernel("norm", "acme/any"),
        switches=OpSwitches(implementations={"norm": "acme/norm"}),
    )
    assert "--op norm=acme/norm cannot be obeyed at 1 of 2 places (the first is model.1" in told
    assert "acme/norm: hidden_size 500; takes multiples of 64" in told
    assert "acme/any: would do" in told
    assert "Instead: leave --op norm=acme/norm out, or --op norm=acme/any." in told


def test_an_implementation_that_nobody_registered_is_refused_with_those_that_are() -> None:
    told = refused(
        kernel("norm", "acme/norm"), switches=OpSwitches(implementations={"norm": "acme/gone"})
    )
    assert "--op norm=acme/gone names an implementation that nobody registered" in told
    assert "There are: acme/norm, native." in told


@pytest.mark.parametrize(
    "switches",
    [OpSwitches(required=frozenset({"slot"})), OpSwitches(implementations={"slot": "acme/x"})],
)
def test_a_wish_for_an_op_that_the_model_lacks_is_refused(switches: OpSwitches) -> None:
    told = refused(kernel("slot", "acme/x"), switches=switches)
    assert "cannot be obeyed: this model has no op slot. It has: act, norm." in told


def test_a_required_op_that_would_run_native_is_refused_with_each_reason() -> None:
    switches = OpSwitches(is_on=False, required=frozenset({"norm", "act"}))
    told = refused(
        kernel("norm", "acme/a", when=ONLY_64),
        kernel("norm", "acme/b", when=Needs(dtype="float16")),
        switches=switches,
    )
    assert "--custom-ops +norm cannot be obeyed at 1 of 2 places" in told
    assert "acme/a: hidden_size 500; takes multiples of 64" in told
    assert "acme/b: dtype bfloat16; takes float16" in told
    assert "--custom-ops +act cannot be obeyed at 1 of 1 places" in told
    assert "no installed package has another implementation than native" in told


def test_a_required_op_without_an_implementation_is_refused_though_a_fused_slot_could_run() -> None:
    ops = (kernel("slot", "acme/fused"), kernel("act", "acme/act", when=Needs(dtype="float16")))
    for key, reason in (
        ("act", "acme/act: dtype bfloat16; takes float16"),
        ("norm", "no installed package has another implementation than native"),
    ):
        told = refused(*ops, sites=FUSED, switches=OpSwitches(required=frozenset({key})))
        assert f"--custom-ops +{key} cannot be obeyed" in told
        assert "(the first is model.0.slot." in told
        assert reason in told


def test_a_required_slot_and_a_required_op_inside_it_contradict_each_other() -> None:
    told = refused(
        kernel("slot", "acme/fused"),
        kernel("norm", "acme/norm"),
        sites=FUSED,
        switches=OpSwitches(required=frozenset({"slot", "norm"})),
    )
    assert "--custom-ops +slot cannot be obeyed at 1 of 1 places" in told
    assert "it would do the work of norm inside it, and --custom-ops +norm was asked for" in told
    assert "+norm cannot" not in told


def test_a_wish_for_a_fused_slot_against_one_for_an_op_inside_it_is_refused() -> None:
    told = refused(
        kernel("slot", "acme/fused"),
        sites=FUSED,
        switches=OpSwitches(required=frozenset({"slot"}), off=frozenset({"norm"})),
    )
    assert "--custom-ops +slot cannot be obeyed" in told
    assert "it would do the work of norm inside it, and --custom-ops -norm was asked for" in told
