"""Profile by dtype: how many cases of each cell passed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dougong_conformance.outcomes import Outcome
from dougong_conformance.report.model import Report, profiles_told
from dougong_conformance.report.tally import dtype_of, is_failure, requirement_of
from dougong_conformance.results import CaseResult

ANY = "no dtype"


@dataclass(frozen=True, slots=True)
class Cell:
    """Cases of one profile and dtype.

    Attributes:
        state: ``passed``, ``failed``, ``waived``, ``incomplete``, ``not_claimed`` or empty.
        passed: How many passed.
        asked: How many there are, without those that are not claimed.
        query: For the filter.
    """

    state: str = ""
    passed: int = 0
    asked: int = 0
    query: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One profile.

    Attributes:
        profile: Its name.
        verdict: Of the profile; empty: not in this run.
        cells: One per column.
        provisional: Requirements that are told and not counted.
    """

    profile: str
    verdict: str
    cells: tuple[Cell, ...]
    provisional: int = 0


def columns(report: Report) -> tuple[str, ...]:
    """``no dtype``, then the dtypes in the plugin's order of preference, then others."""
    seen = {one.dtype for one in report.results} | {
        dtype_of(i) for i in report.record.footer.missing
    }
    claimed = [str(one) for one in report.record.header.claims.get("dtypes", ())]
    ordered = [one for one in claimed if one in seen]
    return (ANY, *ordered, *sorted(seen - set(ordered) - {""}))


def grid(report: Report) -> list[Row]:
    """Every profile, in order."""
    dtypes = columns(report)
    rows = []
    for profile in profiles_told(report):
        summary = report.record.footer.profiles.get(profile)
        cells = tuple(_cell(report, profile, dtype) for dtype in dtypes)
        rows.append(
            Row(
                profile=profile,
                verdict=summary.verdict.value if summary else "",
                cells=cells,
                provisional=sum(one.profile == profile for one in report.provisional),
            )
        )
    return rows


def _cell(report: Report, profile: str, column: str) -> Cell:
    dtype = "" if column == ANY else column
    results = [
        one
        for one in report.results
        if one.profile == profile and one.dtype == dtype and not one.is_provisional
    ]
    missing = [
        one
        for one in report.record.footer.missing
        if requirement_of(one).partition(".")[0] == profile and dtype_of(one) == dtype
    ]
    if not results and not missing:
        return Cell()
    asked = [one for one in results if one.outcome is not Outcome.NOT_CLAIMED]
    return Cell(
        state=_state(results, is_missing=bool(missing)),
        passed=sum(one.outcome is Outcome.PASS for one in results),
        asked=len(asked) + len(missing),
        query=f"profile:{profile} dtype:{dtype or 'none'}",
    )


def _state(results: Sequence[CaseResult], *, is_missing: bool) -> str:
    outcomes = {one.outcome for one in results}
    if any(map(is_failure, results)):
        return "failed"
    if is_missing or Outcome.NOT_RUN in outcomes:
        return "incomplete"
    if Outcome.WAIVED in outcomes:
        return "waived"
    if outcomes <= {Outcome.NOT_CLAIMED}:
        return "not_claimed"
    return "passed"
