from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dougong_conformance.judging import Metric
from dougong_conformance.outcomes import Outcome
from dougong_conformance.report.compare import Comparison, compare
from dougong_conformance.report.model import Report, make_report
from dougong_conformance.results import CaseResult, RunRecord
from tests.unit.report import made_up


def report(record: RunRecord) -> Report:
    return make_report(record, requirements=made_up.requirements())


def after(*changes: tuple[str, dict[str, Any]], head: Any = None) -> RunRecord:
    """The passing run with some results changed."""
    table = dict(changes)
    rows = [
        replace(one, **{"reason": "so it was", **table[one.id]}) if one.id in table else one
        for one in made_up.passing().results
    ]
    return made_up.record(rows, head)


def compared(new: RunRecord, old: RunRecord | None = None) -> Comparison:
    return compare(report(old or made_up.passing()), report(new))


LINEAR = "ops.linear[bfloat16]"


def test_a_run_does_not_differ_from_itself() -> None:
    found = compared(made_up.passing())
    assert found.verdict == "comparable"
    told = found.to_json()
    for name in ("regressions", "fixed", "other", "added", "waivers", "drift", "environment"):
        assert told[name] == (), name
    assert told["suite"] == ()


@pytest.mark.parametrize("outcome", [one for one in Outcome if one is not Outcome.PASS])
def test_whatever_passed_and_does_so_no_more_is_a_regression(outcome: Outcome) -> None:
    found = compared(after((LINEAR, {"outcome": outcome})))
    assert [(one.id, one.old, one.new) for one in found.regressions] == [
        (LINEAR, "pass", outcome.value)
    ]
    back = compared(made_up.passing(), after((LINEAR, {"outcome": outcome})))
    assert back.regressions == ()
    is_fixed = outcome is not Outcome.NOT_CLAIMED
    assert [one.id for one in back.fixed] == ([LINEAR] if is_fixed else [])


def test_a_capability_that_is_quietly_withdrawn_is_a_regression() -> None:
    window = "attention.sliding_window[float32]"
    found = compared(after((window, {"outcome": Outcome.NOT_CLAIMED})))
    assert found.withdrawn == (window,)
    rows = [one for one in made_up.passing().results if one.dtype != "float16"]
    required = tuple(one.id for one in rows)
    record = made_up.record(rows, required=required, missing=())
    found = compared(record)
    assert "ops.linear[float16]" in found.withdrawn
    assert {one.new for one in found.regressions} == {"case dropped"}


def test_a_case_that_lost_its_result_is_a_regression() -> None:
    rows = [one for one in made_up.passing().results if one.id != LINEAR]
    found = compared(made_up.record(rows))
    assert [(one.id, one.new) for one in found.regressions] == [(LINEAR, "no result")]
    assert found.withdrawn == ()


def test_a_requirement_that_the_suite_dropped_is_a_difference_of_the_suite() -> None:
    smaller = {k: v for k, v in made_up.requirements().items() if k != "ops.linear"}
    rows = [one for one in made_up.passing().results if one.requirement != "ops.linear"]
    record = made_up.record(rows, missing=())
    new = make_report(record, requirements=smaller)
    found = compare(report(made_up.passing()), new)
    assert found.regressions == ()
    assert [one.id for one in found.suite] == ["ops.linear"]


def test_failures_of_another_kind_and_of_new_cases_are_told_apart() -> None:
    old = after((LINEAR, {"outcome": Outcome.FAIL}))
    found = compared(after((LINEAR, {"outcome": Outcome.CRASH})), old)
    assert [(one.id, one.old, one.new) for one in found.other] == [(LINEAR, "fail", "crash")]
    few = [one for one in made_up.passing().results if one.id != LINEAR]
    found = compared(after((LINEAR, {"outcome": Outcome.FAIL})), made_up.record(few, missing=()))
    assert [one.id for one in found.added] == [LINEAR]
    assert found.regressions == ()


def test_waivers_that_come_go_or_change_are_told() -> None:
    old = after((LINEAR, {"outcome": Outcome.WAIVED, "waiver": "A-1"}))
    new = after((LINEAR, {"outcome": Outcome.WAIVED, "waiver": "A-2"}))
    assert [(one.old, one.new) for one in compared(new, old).waivers] == [("A-1", "A-2")]
    assert [(one.old, one.new) for one in compared(made_up.passing(), old).waivers] == [
        ("A-1", "none")
    ]


@pytest.mark.parametrize(
    ("before", "now", "is_told"),
    [(1.0, 1.4, False), (1.0, 1.6, True), (1.6, 1.0, True), (0.01, 0.1, False), (0.0, 0.5, True)],
)
def test_a_metric_that_moved_far_is_told_unless_it_is_noise(
    before: float, now: float, is_told: bool
) -> None:
    def with_error(value: float) -> RunRecord:
        return after((LINEAR, {"metrics": (Metric("max error", value, 3.0),), "reason": ""}))

    found = compared(with_error(now), with_error(before))
    assert [one.id for one in found.drift] == ([LINEAR] if is_told else [])
    assert found.regressions == ()


def _other_plugin(record: RunRecord) -> RunRecord:
    plugin = replace(record.header.plugin, name="acme")
    return replace(record, header=replace(record.header, plugin=plugin))


def _other_spec(record: RunRecord) -> RunRecord:
    return replace(record, header=replace(record.header, spec_version="1.1"))


def _on_chip(record: RunRecord) -> RunRecord:
    return replace(record, header=replace(record.header, is_double=False))


def _without_runtime(record: RunRecord) -> RunRecord:
    return made_up.without_runtime(record)


def _partial(record: RunRecord) -> RunRecord:
    selection = made_up.smoke().header.selection
    return replace(record, header=replace(record.header, selection=selection))


def _proves_nothing(record: RunRecord) -> RunRecord:
    return replace(record, footer=replace(record.footer, exit_code=5))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_other_plugin, "they are of platforms sim and acme"),
        (_other_spec, "they are by specifications 1.0 and 1.1"),
        (_on_chip, "one ran on a device double"),
        (_without_runtime, "the vendor's runtime was replaced in one of them"),
        (_partial, "they were not asked for the same cases"),
        (_proves_nothing, "the new run proves nothing: it ended with exit code 5"),
    ],
)
def test_runs_that_cannot_be_compared_say_why(
    change: Callable[[RunRecord], RunRecord], why: str
) -> None:
    found = compared(change(made_up.passing()))
    assert found.verdict.startswith(f"not comparable: {why}")
    assert found.to_json()["is_comparable"] is False


def test_environment_and_suite_differences_are_told_by_name() -> None:
    head = made_up.header(
        torch="2.14.0+cpu",
        suite_version="1.0.20261224",
        environment={"PATH": "/usr/bin:/bin", "HOME": "/home/vendor", "SIM_DEVICE_COUNT": "4"},
        started="2026-12-24T10:00:00Z",
    )
    found = compared(made_up.passing(head))
    assert found.verdict == "comparable"
    assert [one.id for one in found.environment] == ["torch", "environment.SIM_DEVICE_COUNT"]
    assert [one.id for one in found.suite] == ["suite_version"]


def test_everything_can_be_written_as_json() -> None:
    text = json.dumps(compared(made_up.failing()).to_json())
    assert json.loads(text)["verdict"] == "comparable"


def test_provisional_cases_are_not_compared() -> None:
    row = made_up.requirements()["lora.unload"]
    failed: CaseResult = made_up.result(row, "", Outcome.FAIL, reason="no")
    passed = made_up.result(row, "")
    rows = made_up.passing().results
    assert (
        compared(made_up.record((*rows, failed)), made_up.record((*rows, passed))).regressions == ()
    )
