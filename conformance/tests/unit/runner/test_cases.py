"""How a case ends, whatever its check and its plugin do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from dougong_conformance.check import Case, Check
from dougong_conformance.judging import Judge
from dougong_conformance.outcomes import Outcome, SubjectLost
from dougong_conformance.runner.cases import CaseEnd, repeated, run_case
from dougong_conformance.runner.clock import CaseClock
from dougong_conformance.runner.limits import Limits
from dougong_conformance.subject import Raised, Subject, SubjectRaised

SUBJECT = cast("Subject", None)


def end_of(run: Callable[..., None], dtype: str = "") -> CaseEnd:
    return run_case(Case(Check("ops.x", run, bool(dtype)), dtype), SUBJECT)


def _raise(exc: BaseException) -> Callable[..., None]:
    def run(subject: Any, judge: Judge) -> None:
        judge.metric("m", 2.0, 3.0)
        raise exc

    return run


RAISED = Raised("DeviceLost", ("DeviceLost", "DeviceError"), "gone", "trace", {"rank": 2})


@pytest.mark.parametrize(
    ("exc", "outcome", "reason"),
    [
        (SubjectRaised(RAISED), Outcome.FAIL, "raised DeviceLost: gone"),
        (SubjectLost("killed", Outcome.CRASH), Outcome.CRASH, "killed"),
        (SubjectLost("slow", Outcome.TIMEOUT), Outcome.TIMEOUT, "slow"),
        (KeyError("x"), Outcome.ERROR, "the check itself failed: KeyError: 'x'"),
    ],
)
def test_an_exception_becomes_an_outcome(exc: Exception, outcome: Outcome, reason: str) -> None:
    end = end_of(_raise(exc))
    assert (end.outcome, end.reason) == (outcome, reason)
    assert end.metrics[0].value == 2.0


def test_the_plugins_exception_is_told_with_its_rank_and_traceback() -> None:
    end = end_of(_raise(SubjectRaised(RAISED)))
    assert (end.rank, end.raised, end.traceback) == (2, "DeviceLost", "trace")


@pytest.mark.parametrize(
    ("ends", "outcome"),
    [("fail", Outcome.FAIL), ("not_claimed", Outcome.NOT_CLAIMED), ("not_run", Outcome.NOT_RUN)],
)
def test_a_judge_ends_a_case(ends: str, outcome: Outcome) -> None:
    end = end_of(lambda subject, judge: getattr(judge, ends)("so it is"))
    assert (end.outcome, end.reason) == (outcome, "so it is")


def test_a_dtype_is_handed_over() -> None:
    seen: list[str] = []
    end = end_of(lambda subject, judge, dtype: seen.append(dtype), "float16")
    assert (end.id, end.outcome, seen) == ("ops.x[float16]", Outcome.PASS, ["float16"])


def test_a_reason_and_a_traceback_have_an_end() -> None:
    end = end_of(_raise(SubjectRaised(Raised("E", ("E",), "x" * 9000, "y" * 90_000))))
    assert len(end.reason) == 2000
    assert len(end.traceback) == 20_000


def _ends(*outcomes: Outcome) -> list[CaseEnd]:
    return [CaseEnd(id="ops.x", outcome=one, reason=f"{one}", ms=1.0) for one in outcomes]


def test_repetitions_that_agree_are_one_result() -> None:
    end = repeated(_ends(Outcome.PASS, Outcome.PASS, Outcome.PASS))
    assert (end.outcome, end.ms, len(end.attempts)) == (Outcome.PASS, 3.0, 3)


def test_repetitions_that_differ_are_a_failure() -> None:
    end = repeated(_ends(Outcome.PASS, Outcome.NOT_RUN, Outcome.PASS))
    assert end.outcome is Outcome.FAIL
    assert end.reason == "flaky: pass, not_run, pass in 3 runs; not_run"


def test_one_run_has_no_attempts() -> None:
    assert repeated(_ends(Outcome.CRASH)).attempts == ()


def test_a_deadline_follows_the_judges_own_work_within_bounds() -> None:
    limits = Limits()
    assert limits.case_s(0.1) == 30.0
    assert limits.case_s(10.0) == 100.0
    assert limits.case_s(1000.0) == 900.0


def test_a_compile_budget_counts_for_the_first_call_of_each_op_and_has_an_end() -> None:
    clock = CaseClock(Limits(case_min_s=1.0, compile_max_s=50.0))
    clock.allow_compilation(500.0)
    clock.begin_case()
    with clock.calling("ops.run", {"op": "rope"}) as left:
        assert 50.0 < left <= 51.0
    clock.begin_case()
    with clock.calling("ops.run", {"op": "rope"}) as left:
        assert left <= 1.0
    with clock.calling("ops.run", {"op": "linear"}) as left:
        assert 50.0 < left <= 51.0


def test_a_start_takes_nothing_from_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    clock = CaseClock(Limits(case_min_s=5.0))
    with clock.starting():
        now[0] += 100.0
    with clock.calling("a.b", {}):
        now[0] += 2.0
    assert clock.oracle_s == 0.0
    assert clock.left_s() == 3.0
