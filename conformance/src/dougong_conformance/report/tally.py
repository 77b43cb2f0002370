"""Requirements counted: what a plugin met of what every plugin must, and of what it claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dougong_conformance.outcomes import BAD, Outcome
from dougong_conformance.requirements import Level, Requirement
from dougong_conformance.results import CaseResult, RunRecord


class State(StrEnum):
    """What a run says of one requirement, all of its cases together."""

    PASSED = "passed"
    FAILED = "failed"
    WAIVED = "waived"
    INCOMPLETE = "incomplete"
    NOT_CLAIMED = "not claimed"
    PROVISIONAL = "provisional"
    NOT_ASKED = "not asked for"


@dataclass(frozen=True, slots=True)
class Tally:
    """Requirements in numbers: a numerator and a denominator, never a percentage.

    Attributes:
        passed: Every case passed.
        claimed: Of those that are asked of this plugin (of Core: all).
        offered: Of those that the suite has.
        waived: Would have failed, and a waiver covers it.
    """

    passed: int = 0
    claimed: int = 0
    offered: int = 0
    waived: int = 0


_ALWAYS_BAD = frozenset({Outcome.CRASH, Outcome.TIMEOUT, Outcome.DEVICE_LOST})


def is_failure(one: CaseResult) -> bool:
    """It makes the run fail, as the verdict has it: a recommendation that is not met does not."""
    if one.is_provisional:
        return False
    if one.outcome is Outcome.WAIVER_VIOLATION or one.outcome in _ALWAYS_BAD:
        return True
    return one.outcome in BAD and one.level is Level.MUST


def requirement_of(case_id: str) -> str:
    """``"ops.rms_norm"`` of ``"ops.rms_norm[bfloat16]"``."""
    return case_id.partition("[")[0]


def dtype_of(case_id: str) -> str:
    """``"bfloat16"`` of ``"ops.rms_norm[bfloat16]"``; empty where there is none."""
    return case_id.partition("[")[2].rstrip("]")


def results_by_requirement(record: RunRecord) -> dict[str, list[CaseResult]]:
    """Results of each requirement, in the order of the record."""
    found: dict[str, list[CaseResult]] = {}
    for one in record.results:
        found.setdefault(one.requirement, []).append(one)
    return found


def states(record: RunRecord, requirements: Iterable[Requirement]) -> dict[str, State]:
    """State of every requirement by id, in the order given."""
    results = results_by_requirement(record)
    missing = {requirement_of(one) for one in record.footer.missing}
    return {
        one.id: _state(one, results.get(one.id, ()), is_missing=one.id in missing)
        for one in requirements
    }


def core_tally(requirements: Iterable[Requirement], found: Mapping[str, State]) -> Tally:
    """Of the requirements that every plugin must meet."""
    return _tally([found[one.id] for one in requirements if one.is_core])


def extended_tally(requirements: Iterable[Requirement], found: Mapping[str, State]) -> Tally:
    """Of all others that count: those that hang on a claim, and what a plugin should do."""
    return _tally([found[one.id] for one in requirements if is_extended(one)])


def is_extended(one: Requirement) -> bool:
    """Counts for *Extended*."""
    return not one.is_core and not one.is_provisional and one.level is not Level.INFO


def _tally(found: Sequence[State]) -> Tally:
    asked = [one for one in found if one is not State.NOT_ASKED]
    return Tally(
        passed=asked.count(State.PASSED),
        claimed=len(asked) - asked.count(State.NOT_CLAIMED),
        offered=len(asked),
        waived=asked.count(State.WAIVED),
    )


def _state(one: Requirement, results: Sequence[CaseResult], *, is_missing: bool) -> State:
    outcomes = {result.outcome for result in results}
    if one.is_provisional:
        return State.PROVISIONAL
    if outcomes & BAD or Outcome.WAIVER_VIOLATION in outcomes:
        return State.FAILED
    if is_missing or Outcome.NOT_RUN in outcomes:
        return State.INCOMPLETE
    if Outcome.WAIVED in outcomes:
        return State.WAIVED
    if Outcome.PASS in outcomes:
        return State.PASSED
    return State.NOT_CLAIMED if outcomes else State.NOT_ASKED
