"""A report: a run's record with the specification's sentences, the ladder, and what follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from dougong_conformance.outcomes import BAD, Outcome
from dougong_conformance.report.ladder import BESIDE, Evidence, Rung, climb, read_evidence
from dougong_conformance.report.tally import (
    State,
    Tally,
    core_tally,
    extended_tally,
    is_failure,
    requirement_of,
    states,
)
from dougong_conformance.requirements import PROFILES, Requirement, all_requirements
from dougong_conformance.results import CaseResult, CoreVerdict, RunRecord

PROGRAM = "dougong-conform"

CORE_WORDS: Mapping[CoreVerdict, str] = {
    CoreVerdict.CONFORMANT: "passed",
    CoreVerdict.CONFORMANT_WITH_WAIVERS: "passed with waivers",
    CoreVerdict.NOT_CONFORMANT: "failed",
    CoreVerdict.INCOMPLETE: "incomplete",
}

SYMBOLS: Mapping[str, str] = {
    "pass": "✓", "fail": "✗", "crash": "✸", "timeout": "◔", "device_lost": "⊘", "error": "!",
    "not_claimed": "∅", "not_run": "○", "waived": "≈", "waiver_violation": "≠",
    "missing": "?", "passed": "✓", "failed": "✗", "incomplete": "○", "provisional": "…",
    "reached": "✓", "no evidence": "∅", "conformant": "✓", "conformant_with_waivers": "≈",
    "not_conformant": "✗",
}  # fmt: skip
"""Beside a word, never instead of it."""

_URGENCY = (
    Outcome.DEVICE_LOST, Outcome.CRASH, Outcome.TIMEOUT, Outcome.ERROR, Outcome.FAIL,
    Outcome.WAIVER_VIOLATION,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that the written forms are made of.

    Attributes:
        record: Of the run.
        requirements: The specification as this run was judged by it.
        evidence: Files of the vendor's own tests.
        evidence_problems: Of those that do not count, one sentence each.
    """

    record: RunRecord
    requirements: tuple[Requirement, ...]
    evidence: tuple[Evidence, ...] = ()
    evidence_problems: tuple[str, ...] = field(default=())

    @cached_property
    def ladder(self) -> tuple[Rung, ...]:
        """Every rung, lowest first."""
        return climb(self.record, self.evidence)

    @property
    def beside_ladder(self) -> tuple[str, ...]:
        """What the vendor's tests showed that reaches no rung."""
        return tuple(
            f"Beside the ladder, no rung: {one.what} ({one.result}, {one.when}; {one.file})"
            for one in self.evidence
            if one.rung == BESIDE
        )

    @cached_property
    def states(self) -> dict[str, State]:
        """State of every requirement."""
        return states(self.record, self.requirements)

    @cached_property
    def by_id(self) -> dict[str, Requirement]:
        """Requirements by id."""
        return {one.id: one for one in self.requirements}

    @cached_property
    def results(self) -> tuple[CaseResult, ...]:
        """Sorted by profile, then id: the same for the same run."""
        order = {name: index for index, name in enumerate(PROFILES)}
        return tuple(
            sorted(self.record.results, key=lambda one: (order.get(one.profile, 99), one.id))
        )

    @cached_property
    def failures(self) -> tuple[CaseResult, ...]:
        """Results that make the run fail, the most urgent first."""
        bad = [one for one in self.results if is_failure(one)]
        return tuple(sorted(bad, key=lambda one: (_URGENCY.index(one.outcome), not _is_core(one))))

    @cached_property
    def advice(self) -> tuple[CaseResult, ...]:
        """Recommendations that are not met: they fail nothing."""
        return tuple(
            one
            for one in self.results
            if one.outcome in BAD and not is_failure(one) and not one.is_provisional
        )

    @cached_property
    def warnings(self) -> tuple[tuple[str, str], ...]:
        """Case and what its vendor should know."""
        return tuple((one.id, text) for one in self.results for text in one.warnings)

    @cached_property
    def provisional(self) -> tuple[Requirement, ...]:
        """Requirements that are told and never counted."""
        return tuple(one for one in self.requirements if one.is_provisional)

    @cached_property
    def never_reached(self) -> tuple[str, ...]:
        """Required cases with no result, then requirements that nobody asked for in this run."""
        missing = self.record.footer.missing
        told = {requirement_of(one) for one in missing}
        unasked = (
            name
            for name, state in self.states.items()
            if state is State.NOT_ASKED and name not in told
        )
        return (*missing, *unasked)

    @property
    def core(self) -> Tally:
        """Of the requirements of every plugin."""
        return core_tally(self.requirements, self.states)

    @property
    def extended(self) -> Tally:
        """Of those that hang on a claim."""
        return extended_tally(self.requirements, self.states)

    @property
    def waived(self) -> int:
        """Cases that a waiver covers."""
        return sum(one.outcome is Outcome.WAIVED for one in self.results)

    @property
    def is_partial(self) -> bool:
        """The run was not asked for the whole suite, so no verdict on Core follows."""
        return not self.record.header.selection.is_everything

    @property
    def subject(self) -> str:
        """``dougong-sim 0.1.0 (platform sim)``."""
        plugin = self.record.header.plugin
        return f"{plugin.distribution} {plugin.version} (platform {plugin.name})"

    @property
    def core_text(self) -> str:
        """``Core 1.0 passed``."""
        header, footer = self.record.header, self.record.footer
        return f"Core {header.spec_version} {CORE_WORDS[footer.core]}"

    @property
    def short(self) -> str:
        """``Core 1.0 passed, Ext 7/9, 0 waived``, or what a partial run may say."""
        if self.is_partial:
            passed = sum(one.outcome is Outcome.PASS for one in self.results)
            return f"partial run ({self.record.header.mode}), {passed}/{len(self.results)} cases"
        more = self.extended
        told = f"{self.core_text}, Ext {more.passed}/{more.offered}, {self.waived} waived"
        return told if self.record.header.mode == "certify" else f"{told} (not certified)"

    @property
    def last_line(self) -> str:
        """As the command printed it."""
        footer = self.record.footer
        reason = footer.exit_reason or "every required case has a result, and none failed"
        return f"{PROGRAM}: exit {footer.exit_code}: {reason}"

    @property
    def device_note(self) -> str:
        """Of a double, that it is one; empty otherwise."""
        if not self.record.header.is_double:
            return ""
        if self.record.header.is_runtime_replaced:
            return (
                "The device is a double, and another platform's runtime took the place of the "
                "vendor's: this report is no statement about either."
            )
        return "The device says that it is a double: this report is no statement about a chip."

    def repro(self, one: CaseResult) -> str:
        """One command that runs a case alone."""
        return one.repro or f"{PROGRAM} repro out '{one.id}'"


def make_report(
    record: RunRecord,
    folder: Path | None = None,
    requirements: Mapping[str, Requirement] | None = None,
) -> Report:
    """A run's report.

    Args:
        record: The run.
        folder: Of the report, for ``evidence/*.json``.
        requirements: As the run was judged by; ``None``: the suite's own.
    """
    known = all_requirements() if requirements is None else requirements
    evidence, problems = ((), ()) if folder is None else read_evidence(folder, record)
    return Report(
        record=record,
        requirements=tuple(known.values()),
        evidence=evidence,
        evidence_problems=problems,
    )


def profiles_told(report: Report) -> Iterator[str]:
    """Profiles in order, then any that the suite does not know."""
    yield from PROFILES
    yield from sorted(set(report.record.footer.profiles) - set(PROFILES))


def _is_core(one: CaseResult) -> bool:
    return not one.capability
