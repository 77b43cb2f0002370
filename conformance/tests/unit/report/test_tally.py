from __future__ import annotations

import pytest

from dougong_conformance.outcomes import Outcome
from dougong_conformance.report.model import make_report
from dougong_conformance.report.tally import (
    State,
    Tally,
    dtype_of,
    is_failure,
    requirement_of,
    states,
)
from dougong_conformance.requirements import Level
from dougong_conformance.results import CaseResult, RunRecord
from tests.unit.report import made_up

SPEC = made_up.requirements()
LINEAR, SINKS = SPEC["ops.linear"], SPEC["attention.sinks"]


def state(outcomes: tuple[Outcome, ...], missing: tuple[str, ...] = ()) -> State:
    dtypes = ("float32", "bfloat16")
    rows = [
        made_up.result(LINEAR, dtype, outcome, reason="so it was")
        for dtype, outcome in zip(dtypes, outcomes, strict=False)
    ]
    run = made_up.record(rows, missing=missing)
    return states(run, [LINEAR])[LINEAR.id]


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ((Outcome.PASS, Outcome.PASS), State.PASSED),
        ((Outcome.PASS, Outcome.FAIL), State.FAILED),
        ((Outcome.WAIVED, Outcome.CRASH), State.FAILED),
        ((Outcome.PASS, Outcome.WAIVER_VIOLATION), State.FAILED),
        ((Outcome.PASS, Outcome.WAIVED), State.WAIVED),
        ((Outcome.WAIVED, Outcome.NOT_RUN), State.INCOMPLETE),
        ((Outcome.PASS, Outcome.NOT_CLAIMED), State.PASSED),
        ((Outcome.NOT_CLAIMED, Outcome.NOT_CLAIMED), State.NOT_CLAIMED),
        ((), State.NOT_ASKED),
    ],
)
def test_a_requirement_is_as_good_as_its_worst_case(
    outcomes: tuple[Outcome, ...], expected: State
) -> None:
    assert state(outcomes) is expected


def test_a_requirement_with_a_case_that_has_no_result_is_incomplete() -> None:
    assert state((Outcome.PASS,), ("ops.linear[bfloat16]",)) is State.INCOMPLETE


def test_passed_claimed_and_offered_are_three_numbers() -> None:
    report = make_report(made_up.passing(), requirements=SPEC)
    assert report.core == Tally(passed=36, claimed=36, offered=36, waived=0)
    assert report.extended == Tally(passed=10, claimed=10, offered=12, waived=0)


def test_a_waived_requirement_is_not_passed() -> None:
    report = make_report(made_up.failing(), requirements=SPEC)
    assert report.extended.waived == 1
    assert report.extended.passed < report.extended.claimed


def test_provisional_requirements_are_in_no_number() -> None:
    report = make_report(made_up.failing(), requirements=SPEC)
    assert report.states["lora.unload"] is State.PROVISIONAL
    total = report.core.offered + report.extended.offered
    assert total == sum(not one.is_provisional for one in SPEC.values())


@pytest.mark.parametrize(
    ("outcome", "level", "is_provisional", "expected"),
    [
        (Outcome.FAIL, Level.MUST, False, True),
        (Outcome.FAIL, Level.SHOULD, False, False),
        (Outcome.CRASH, Level.SHOULD, False, True),
        (Outcome.CRASH, Level.MUST, True, False),
        (Outcome.WAIVER_VIOLATION, Level.SHOULD, False, True),
        (Outcome.WAIVED, Level.MUST, False, False),
    ],
)
def test_what_makes_a_run_fail_is_what_the_verdict_says(
    outcome: Outcome, level: Level, is_provisional: bool, expected: bool
) -> None:
    one = CaseResult(
        id="a.b", requirement="a.b", profile="a", level=level, outcome=outcome,
        is_provisional=is_provisional,
    )  # fmt: skip
    assert is_failure(one) is expected


def test_a_case_tells_its_requirement_and_dtype() -> None:
    assert (requirement_of("ops.a[bfloat16]"), dtype_of("ops.a[bfloat16]")) == ("ops.a", "bfloat16")
    assert (requirement_of("ops.a"), dtype_of("ops.a")) == ("ops.a", "")


def test_a_partial_run_counts_what_it_was_asked_for_only() -> None:
    run: RunRecord = made_up.smoke()
    report = make_report(run, requirements=SPEC)
    assert report.core.offered == 3
    assert report.short == "partial run (smoke), 7/7 cases"
