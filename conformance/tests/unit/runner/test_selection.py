"""Which cases are asked for."""

from __future__ import annotations

import pytest

from dougong_conformance.requirements import STAGES, Requirement
from dougong_conformance.results import Selection
from dougong_conformance.runner.selection import BadExpression, matches, select, stage_of

ROWS = {
    one.id: one
    for one in (
        Requirement(id="ops.rope", title="", text="", is_smoke=True),
        Requirement(id="ops.linear", title="", text=""),
        Requirement(id="worker.starts", title="", text="", is_smoke=True, stage="engine"),
    )
}
IDS = ("ops.rope[float32]", "ops.rope[bfloat16]", "ops.linear[float32]", "worker.starts", "ops.odd")


@pytest.mark.parametrize(
    ("expression", "is_fit"),
    [
        ("", True),
        ("rope", True),
        ("ROPE", True),
        ("linear", False),
        ("rope and float32", True),
        ("rope and not float32", False),
        ("linear or rope", True),
        ("not (linear or rope)", False),
        ("linear or rope and bfloat16", False),
        ("not not rope", True),
        ("ops.rope[float32]", True),
    ],
)
def test_words_choose_as_in_pytest(expression: str, is_fit: bool) -> None:
    assert matches(expression, "ops.rope[float32]") is is_fit


@pytest.mark.parametrize("expression", ["and", "rope or", "(rope", "rope)", "not", "rope linear"])
def test_words_that_make_no_sense_are_refused(expression: str) -> None:
    with pytest.raises(BadExpression, match="cannot be understood"):
        matches(expression, "ops.rope")


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        (Selection(), IDS[:4]),
        (Selection(profiles=("worker",)), IDS[3:4]),
        (Selection(expression="bfloat16"), IDS[1:2]),
        (Selection(is_smoke=True), (*IDS[:2], IDS[3])),
        (Selection(is_smoke=True, stage="ops"), IDS[:2]),
        (Selection(is_smoke=True, stage="engine"), IDS[3:4]),
        (Selection(cases=("ops.rope",)), IDS[:2]),
        (Selection(cases=("ops.rope[bfloat16]",)), IDS[1:2]),
        (Selection(profiles=("graph",)), ()),
    ],
)
def test_cases_are_chosen_in_their_order(selection: Selection, chosen: tuple[str, ...]) -> None:
    assert select(IDS, ROWS, selection) == chosen


def test_every_profile_belongs_to_a_stage() -> None:
    from dougong_conformance.requirements import PROFILES

    rows = [Requirement(id=f"{name}.x", title="", text="") for name in PROFILES]
    assert {stage_of(row) for row in rows} == set(STAGES)
