from __future__ import annotations

from dataclasses import replace

from dougong.config.op_switches import OpSwitches
from dougong.contracts import AtMost
from tests.unit.planner.compare_harness import NORM, SITES, planned, told
from tests.unit.planner.paper import site


def test_kernel_libraries_count_once_both_plans_know_of_them() -> None:
    assert told(planned(), planned(candidates={"kernels": None})) == []


def test_a_failed_kernel_is_told_once_for_all_its_places() -> None:
    new = planned(candidates={"failed": {"acme/norm": "illegal address"}})
    assert told(planned(), new)[0] == (
        "op norm (3 places) was acme/norm and is native: "
        "acme/norm: failed at its first use: illegal address"
    )


def test_ops_that_come_go_or_move_are_told_in_words() -> None:
    made = planned()
    small = planned(candidates={"ops": (replace(NORM, tokens=AtMost(8)),)})
    assert told(made, small)[0].startswith(
        "op norm (3 places) was acme/norm and is acme/norm up to 8 tokens, native above"
    )
    fewer = planned(needs={"ops": SITES[:2]})
    assert told(made, fewer) == ["op norm (1 place) was acme/norm and is not in the model"]
    other = planned(needs={"ops": (*SITES[:2], site("act", "model.2"))})
    assert told(made, other) == ["op norm and act (1 place) was norm: acme/norm and is act: native"]
    off = planned(switches=OpSwitches(is_on=False))
    assert told(made, off) == [
        "op norm (3 places) was acme/norm and is native: acme/norm: --custom-ops none was asked for"
    ]
