"""The verdict: of what is required, what was reported, and nothing else.

No result is taken for granted, and none is believed that nobody asked for. What this module decides
depends on its arguments only.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dougong_conformance.outcomes import BAD, Outcome
from dougong_conformance.requirements import PROFILES, Level, Requirement
from dougong_conformance.results import (
    CaseResult,
    CoreVerdict,
    Footer,
    PluginIdentity,
    ProfileSummary,
    ProfileVerdict,
    outcomes_digest,
    results_digest,
)
from dougong_conformance.runner.cases import CaseEnd
from dougong_conformance.runner.waivers import Circumstances, Waiver, apply_waivers

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INCOMPLETE = 3
EXIT_SUITE = 4
EXIT_NOTHING = 5
EXIT_WAIVERS = 6
EXIT_TAMPERED = 7

_ALWAYS_BAD = (Outcome.CRASH, Outcome.TIMEOUT, Outcome.DEVICE_LOST)
_DID_NOT_RUN = (Outcome.NOT_RUN, Outcome.NOT_CLAIMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that the verdict is made of.

    Attributes:
        requirements: Rows in force, by id.
        per_dtype: Ids of those whose check runs once per dtype.
        checks: Ids of those that have a check.
        dtypes: That the plugin claims.
        features: That it claims, by their full names, and fields of its claims that say yes.
        selected: Cases that this run was asked for; ``None``: every one.
        ends: As they were reported, in order, repeated ids included.
        has_footer: The judge reached its end.
        is_certifying: Tampering counts.
        plugin: Under test.
        devices: Names and families of its devices.
        today: The day of the run.
        waivers: Of the vendor.
        suite_problems: What is wrong with the suite or the judge.
        tampering: What is wrong with the environment or the wheel.
        no_plugin: Why the plugin could not be loaded; empty: it was.
    """

    requirements: Mapping[str, Requirement]
    per_dtype: frozenset[str]
    checks: frozenset[str]
    dtypes: tuple[str, ...]
    features: frozenset[str] = frozenset()
    selected: frozenset[str] | None = None
    ends: Sequence[CaseEnd] = ()
    has_footer: bool = False
    is_certifying: bool = False
    plugin: PluginIdentity = field(
        default_factory=lambda: PluginIdentity(name="", distribution="", version="")
    )
    devices: tuple[str, ...] = ()
    today: datetime.date = datetime.date.min
    waivers: tuple[Waiver, ...] = ()
    suite_problems: tuple[str, ...] = ()
    tampering: tuple[str, ...] = ()
    no_plugin: str = ""


def decide(evidence: Evidence) -> tuple[tuple[CaseResult, ...], Footer]:
    """Results with their final outcomes, and what follows from them."""
    rows = evidence.requirements
    required = tuple(required_cases(evidence))
    reported, duplicates, unknown = _sorted_out(evidence, required)
    judged = [_ruled(evidence, rows[_row_of(end.id)], end) for end in reported]
    asked = [one for one in required if evidence.selected is None or one in evidence.selected]
    results, waiver_problems = apply_waivers(
        judged,
        evidence.waivers,
        Circumstances(
            plugin=evidence.plugin,
            devices=evidence.devices,
            today=evidence.today,
            required=frozenset(required),
            selected=frozenset(asked),
        ),
    )
    by_id = {one.id: one for one in results}
    missing = tuple(one for one in asked if one not in by_id)
    suite_problems = (
        *evidence.suite_problems,
        *(f"{one} was reported more than once" for one in duplicates),
        *(f"{one} was reported and is no case of this run" for one in unknown),
    )
    profiles = {one: _profile(one, evidence, required, by_id) for one in PROFILES}
    code, reason = _exit(evidence, results, missing, suite_problems, waiver_problems)
    footer = Footer(
        counts=dict(sorted(Counter(one.outcome.value for one in results).items())),
        required=required,
        missing=missing,
        unknown=unknown,
        duplicates=duplicates,
        profiles=profiles,
        core=_core(evidence, required, by_id, suite_problems),
        waiver_problems=tuple(waiver_problems),
        suite_problems=suite_problems,
        exit_code=code,
        exit_reason=reason,
        digest=results_digest(results),
        outcomes_digest=outcomes_digest(results),
    )
    return tuple(results), footer


def required_cases(evidence: Evidence) -> Iterable[str]:
    """Ids of every case that must have a result, whether or not a check for it exists.

    A requirement that is judged per dtype has one per claimed dtype. With no dtype claimed its own
    id stands there: nothing can report it, so that claiming nothing never passes.
    """
    for row in evidence.requirements.values():
        if not row.is_provisional:
            yield from _ids_of(row, evidence)


def _ids_of(row: Requirement, evidence: Evidence) -> list[str]:
    if row.id in evidence.per_dtype and evidence.dtypes:
        return [f"{row.id}[{dtype}]" for dtype in evidence.dtypes]
    return [row.id]


def _row_of(id: str) -> str:
    return id.partition("[")[0]


def _sorted_out(
    evidence: Evidence, required: Sequence[str]
) -> tuple[list[CaseEnd], tuple[str, ...], tuple[str, ...]]:
    """What was reported of known cases, one each, in the order of the list; the rest by name."""
    known = list(required)
    for row in evidence.requirements.values():
        if row.is_provisional:
            known += _ids_of(row, evidence)
    by_id: dict[str, list[CaseEnd]] = {}
    for end in evidence.ends:
        by_id.setdefault(end.id, []).append(end)
    duplicates = tuple(id for id, ends in by_id.items() if len(ends) > 1)
    unknown = tuple(id for id in by_id if id not in set(known))
    return [_worst(by_id[id]) for id in known if id in by_id], duplicates, unknown


def _worst(ends: Sequence[CaseEnd]) -> CaseEnd:
    return next((end for end in ends if end.outcome is not Outcome.PASS), ends[0])


def _ruled(evidence: Evidence, row: Requirement, end: CaseEnd) -> CaseResult:
    """A result by the rules that no check can bend."""
    outcome, reason = end.outcome, end.reason
    if outcome is Outcome.NOT_CLAIMED and not row.capability:
        outcome = Outcome.FAIL
        reason = f"every plugin must do this, and it says that it is not claimed: {reason}"
    elif outcome is Outcome.NOT_CLAIMED and _is_claimed(row, evidence):
        outcome = Outcome.FAIL
        reason = f"{row.capability} is claimed, and the check ended as not claimed: {reason}"
    elif outcome in (Outcome.WAIVED, Outcome.WAIVER_VIOLATION):
        outcome = Outcome.ERROR
        reason = f"no check can end as {end.outcome}: {reason}"
    if outcome is not Outcome.PASS and not reason:
        reason = "no reason was given"
    dtype = end.id.partition("[")[2].removesuffix("]")
    return CaseResult(
        id=end.id,
        requirement=row.id,
        profile=row.profile,
        level=row.level,
        dtype=dtype,
        outcome=outcome,
        measured=end.outcome,
        reason=reason,
        metrics=end.metrics,
        warnings=end.warnings,
        ms=end.ms,
        rank=end.rank,
        log=end.log,
        traceback=end.traceback,
        attempts=end.attempts,
        capability=row.capability,
        is_provisional=row.is_provisional,
    )


def _is_claimed(row: Requirement, evidence: Evidence) -> bool:
    """Whether everything that turns a requirement on is claimed by its name."""
    return all(one in evidence.features for one in row.capability.split(" and "))


def is_failure(result: CaseResult) -> bool:
    """Whether a result makes the run fail.

    Provisional ones never do. A recommendation that is not met does not, unless its process died
    or hung: that harms whoever uses the device.
    """
    if result.is_provisional or result.outcome not in BAD:
        return False
    return result.level is Level.MUST or result.outcome in _ALWAYS_BAD


def _is_open(result: CaseResult) -> bool:
    """A requirement that this machine could not show."""
    return (
        result.outcome is Outcome.NOT_RUN
        and result.level is Level.MUST
        and not result.is_provisional
    )


def _profile(
    profile: str,
    evidence: Evidence,
    required: Sequence[str],
    by_id: Mapping[str, CaseResult],
) -> ProfileSummary:
    rows = [row for row in evidence.requirements.values() if row.profile == profile]
    own = [id for id in required if evidence.requirements[_row_of(id)].profile == profile]
    asked = [id for id in own if evidence.selected is None or id in evidence.selected]
    results = [by_id[id] for id in own if id in by_id]
    summary = ProfileSummary(
        verdict=ProfileVerdict.PROVISIONAL,
        required=len(own),
        outcomes=dict(sorted(Counter(one.outcome.value for one in results).items())),
        missing=sum(id not in by_id for id in asked),
        provisional=sum(row.is_provisional for row in rows),
        not_selected=len(own) - len(asked),
    )
    return replace(summary, verdict=_profile_verdict(summary, results))


def _profile_verdict(summary: ProfileSummary, results: Sequence[CaseResult]) -> ProfileVerdict:
    if not summary.required:
        return ProfileVerdict.PROVISIONAL
    if any(is_failure(one) or one.outcome is Outcome.WAIVER_VIOLATION for one in results):
        return ProfileVerdict.FAILED
    if summary.missing or summary.not_selected or any(map(_is_open, results)):
        return ProfileVerdict.INCOMPLETE
    if all(one.outcome is Outcome.NOT_CLAIMED for one in results):
        return ProfileVerdict.NOT_CLAIMED
    return ProfileVerdict.PASSED


def _core(
    evidence: Evidence,
    required: Sequence[str],
    by_id: Mapping[str, CaseResult],
    suite_problems: Sequence[str],
) -> CoreVerdict:
    own = [id for id in required if evidence.requirements[_row_of(id)].is_core]
    results = [by_id[id] for id in own if id in by_id]
    if any(is_failure(one) or one.outcome is Outcome.WAIVER_VIOLATION for one in results):
        return CoreVerdict.NOT_CONFORMANT
    if not own or len(results) < len(own) or any(map(_is_open, results)):
        return CoreVerdict.INCOMPLETE
    is_doubtful = evidence.is_certifying and evidence.tampering
    if not evidence.has_footer or suite_problems or is_doubtful:
        return CoreVerdict.INCOMPLETE
    if any(one.outcome is Outcome.WAIVED for one in results):
        return CoreVerdict.CONFORMANT_WITH_WAIVERS
    return CoreVerdict.CONFORMANT


def _exit(
    evidence: Evidence,
    results: Sequence[CaseResult],
    missing: Sequence[str],
    suite_problems: Sequence[str],
    waiver_problems: Sequence[str],
) -> tuple[int, str]:
    """Code and reason; of several that apply the first: 4 > 7 > 5 > 6 > 1 > 3."""
    failures = [one for one in results if is_failure(one)]
    left_open = [one for one in results if _is_open(one)]
    ran = [one for one in results if one.outcome not in _DID_NOT_RUN]
    if suite_problems:
        return EXIT_SUITE, _several("problem(s) of the suite", suite_problems)
    if evidence.is_certifying and evidence.tampering:
        return EXIT_TAMPERED, _several("sign(s) of tampering", evidence.tampering)
    if evidence.no_plugin or not ran:
        return EXIT_NOTHING, f"nothing ran: {evidence.no_plugin or _why_nothing(evidence)}"
    if waiver_problems:
        return EXIT_WAIVERS, _several("problem(s) of waivers", waiver_problems)
    if failures:
        names = [f"{one.id} ({one.outcome})" for one in failures]
        return EXIT_FAILED, _several("failure(s)", names)
    if missing:
        return EXIT_INCOMPLETE, _several("required check(s) without a result", missing)
    if left_open:
        names = [f"{one.id}: {one.reason}" for one in left_open]
        return EXIT_INCOMPLETE, _several("check(s) that this machine cannot run", names)
    if not evidence.has_footer:
        return EXIT_INCOMPLETE, "the judge did not reach its end"
    return EXIT_OK, ""


def _why_nothing(evidence: Evidence) -> str:
    is_empty = evidence.selected is not None and not evidence.selected
    return "no case fits what was asked for" if is_empty else "no case ended with a result"


def _several(what: str, things: Sequence[str]) -> str:
    """``"2 failures: a (fail), and 1 more"``; ``what`` has ``(s)`` where its plural has an s."""
    is_one = len(things) == 1
    words = what.replace("(s)", "" if is_one else "s")
    more = "" if is_one else f", and {len(things) - 1} more"
    return f"{len(things)} {words}: {things[0]}{more}"
