"""One case, from its start to its outcome: the same in every mode."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass, field, replace

from dougong_conformance.check import Case
from dougong_conformance.judging import Judge, Metric
from dougong_conformance.outcomes import CheckEnded, Outcome, SubjectLost
from dougong_conformance.subject import Raised, Subject, SubjectRaised

_MAX_REASON = 2000
_MAX_TRACEBACK = 20_000

LOST_KINDS = frozenset({"DeviceLost"})
"""Exceptions after which a device is looked at before anything else is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseEnd:
    """How a case ended, before the verdict looks at it.

    Attributes:
        id: Of the case.
        outcome: As measured.
        reason: Why; empty where it passed.
        metrics: What was measured.
        warnings: That fail nothing.
        ms: Wall time.
        traceback: Of what ended it.
        rank: Where it began, if a rank was named.
        raised: Class of the plugin's exception that ended it; empty: none did.
        attempts: Outcome of every repetition; empty where it ran once.
        log: File that its process printed to.
    """

    id: str
    outcome: Outcome
    reason: str = ""
    metrics: tuple[Metric, ...] = ()
    warnings: tuple[str, ...] = ()
    ms: float = 0.0
    traceback: str = ""
    rank: int | None = None
    raised: str = ""
    attempts: tuple[Outcome, ...] = field(default=())
    log: str = ""


def run_case(case: Case, subject: Subject) -> CaseEnd:
    """Run a check's function once and say how it ended; never raises for what a plugin does."""
    judge = Judge()
    began = time.monotonic()
    end = _run(case, subject, judge)
    return replace(
        end,
        reason=end.reason[:_MAX_REASON],
        traceback=end.traceback[-_MAX_TRACEBACK:],
        metrics=judge.metrics,
        warnings=tuple(judge.warnings),
        ms=(time.monotonic() - began) * 1000,
    )


def _run(case: Case, subject: Subject, judge: Judge) -> CaseEnd:
    arguments = (subject, judge, case.dtype) if case.dtype else (subject, judge)
    try:
        case.check.run(*arguments)
    except CheckEnded as exc:
        return CaseEnd(id=case.id, outcome=exc.outcome, reason=exc.reason, rank=_rank_of(exc))
    except SubjectRaised as exc:
        return _raised(case, exc.raised)
    except SubjectLost as exc:
        return CaseEnd(id=case.id, outcome=exc.outcome, reason=exc.reason, rank=_rank_of(exc))
    except Exception as exc:  # noqa: BLE001 - a fault of the check must not end the run
        reason = f"the check itself failed: {type(exc).__name__}: {exc}"
        trace = "".join(traceback.format_exception(exc))
        return CaseEnd(id=case.id, outcome=Outcome.ERROR, reason=reason, traceback=trace)
    return CaseEnd(id=case.id, outcome=Outcome.PASS)


def _raised(case: Case, raised: Raised) -> CaseEnd:
    """The plugin raised where the check expected an answer: what was promised does not work."""
    rank = raised.attributes.get("rank")
    return CaseEnd(
        id=case.id,
        outcome=Outcome.FAIL,
        reason=f"raised {raised.kind}: {raised.message}",
        traceback=raised.traceback,
        rank=rank if isinstance(rank, int) else None,
        raised=raised.kind,
    )


def _rank_of(exc: Exception) -> int | None:
    rank = getattr(exc, "rank", None)
    return rank if isinstance(rank, int) else None


def repeated(ends: list[CaseEnd]) -> CaseEnd:
    """One end of several runs of a case: they agree, or it is flaky, which is a failure."""
    outcomes = tuple(end.outcome for end in ends)
    total = sum(end.ms for end in ends)
    worst = next((end for end in ends if end.outcome is not Outcome.PASS), ends[0])
    joined = replace(worst, ms=total, attempts=outcomes if len(ends) > 1 else ())
    if len(set(outcomes)) == 1:
        return joined
    told = ", ".join(outcomes)
    reason = f"flaky: {told} in {len(ends)} runs; {worst.reason}"
    return replace(joined, outcome=Outcome.FAIL, reason=reason[:_MAX_REASON])
