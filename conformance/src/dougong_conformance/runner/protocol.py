"""What the judge tells the supervisor: events as JSON lines, requests for executors beside them.

Events are ``hello``, ``plugin``, ``no_plugin``, ``plan``, ``start``, ``end``, ``heartbeat``,
``problem``, ``finding``, ``searched`` and ``footer``; each is one line with the name under
``event``. A run is what was written, line by line: nothing else of it survives its process.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dougong_conformance.judging import Metric
from dougong_conformance.outcomes import Outcome
from dougong_conformance.results import CaseResult, Selection
from dougong_conformance.runner.cases import CaseEnd
from dougong_conformance.runner.limits import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What the judge is told, once.

    Attributes:
        mode: Of the run.
        selection: Of cases.
        limits: Deadlines.
        repeats: How often core cases of ops and attention run.
        extension: Folder with checks beyond the suite's; empty: none. For tests of the suite.
        search_s: Seconds for seeds beyond the fixed ones; 0: none.
        is_dry: Tell the plugin and the plan, and run nothing.
    """

    mode: str
    selection: Selection = field(default_factory=Selection)
    limits: Limits = field(default_factory=Limits)
    repeats: int = 1
    extension: str = ""
    search_s: float = 0.0
    is_dry: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        chosen = self.selection
        return {
            "mode": self.mode,
            "selection": {
                "profiles": chosen.profiles,
                "expression": chosen.expression,
                "is_smoke": chosen.is_smoke,
                "stage": chosen.stage,
                "cases": chosen.cases,
            },
            "limits": self.limits.to_json(),
            "repeats": self.repeats,
            "extension": self.extension,
            "search_s": self.search_s,
            "is_dry": self.is_dry,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Setup:
        """Inverse of `to_json`."""
        chosen: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in data["selection"].items()
        }
        return cls(
            **{
                **data,
                "selection": Selection(**chosen),
                "limits": Limits(**data["limits"]),
            }
        )


@dataclass
class Told:
    """Everything that a judge told, as far as it could be read.

    Attributes:
        hello: Versions of the judge's process.
        plugin: Facts, environment, patches; empty: it was never loaded.
        no_plugin: Why it could not be loaded, with what kind of error; empty: it was.
        per_dtype: Requirements whose check runs per dtype.
        checks: Requirements that have a check.
        selected: Cases of this run.
        ends: In the order in which they came, repeated ids included.
        started: Case that was begun and has not ended.
        problems: Of the suite.
        findings: Seed and end of cases that fail with further seeds only.
        searched: Number of further seeds.
        has_footer: The judge reached its end.
        broken_lines: Lines that are no event.
    """

    hello: Mapping[str, Any] = field(default_factory=dict)
    plugin: Mapping[str, Any] = field(default_factory=dict)
    no_plugin: Mapping[str, Any] = field(default_factory=dict)
    per_dtype: frozenset[str] = frozenset()
    checks: frozenset[str] = frozenset()
    selected: tuple[str, ...] = ()
    ends: list[CaseEnd] = field(default_factory=list)
    started: str = ""
    problems: list[str] = field(default_factory=list)
    findings: list[tuple[str, CaseEnd]] = field(default_factory=list)
    searched: int = 0
    has_footer: bool = False
    broken_lines: int = 0

    def take(self, line: str) -> dict[str, Any] | None:
        """Add one line; returns its event, ``None`` where it is none."""
        try:
            event = json.loads(line)
            self._take(event)
        except (ValueError, KeyError, TypeError, AttributeError):
            self.broken_lines += 1
            return None
        return dict(event)

    def _take(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "hello":
                self.hello = event["versions"]
            case "plugin":
                self.plugin = event["plugin"]
            case "no_plugin":
                self.no_plugin = event
            case "plan":
                self.per_dtype = frozenset(event["per_dtype"])
                self.checks = frozenset(event["checks"])
                self.selected = tuple(event["selected"])
            case "start":
                self.started = event["id"]
            case "end":
                self.ends.append(end_from_json(event["end"]))
                self.started = ""
            case "problem":
                self.problems.append(str(event["text"]))
            case "finding":
                self.findings.append((str(event["seed"]), end_from_json(event["end"])))
            case "searched":
                self.searched += 1
            case "footer":
                self.has_footer = True
            case "heartbeat":
                pass
            case unknown:
                raise ValueError(unknown)


def read_events(lines: Iterable[str]) -> Told:
    """What a run's file of events tells, whatever has become of its end."""
    told = Told()
    for line in lines:
        if line.strip():
            told.take(line)
    return told


def end_to_json(end: CaseEnd) -> dict[str, Any]:
    """Plain data; goes through the form of a result, which writes odd numbers strictly."""
    data = CaseResult(
        id=end.id,
        requirement="",
        profile="",
        outcome=end.outcome,
        reason=end.reason,
        metrics=end.metrics,
        warnings=end.warnings,
        ms=end.ms,
        rank=end.rank,
        log=end.log,
        traceback=end.traceback,
        attempts=end.attempts,
    ).to_json()
    names = (
        *("id", "outcome", "reason", "metrics", "warnings", "ms"),
        *("rank", "log", "traceback", "attempts"),
    )
    return {**{name: data[name] for name in names}, "raised": end.raised}


def end_from_json(data: Mapping[str, Any]) -> CaseEnd:
    """Inverse of `end_to_json`."""
    return CaseEnd(
        id=str(data["id"]),
        outcome=Outcome(data["outcome"]),
        reason=str(data["reason"]),
        metrics=tuple(
            Metric(
                one["name"],
                float(one["value"]),
                None if one["limit"] is None else float(one["limit"]),
            )
            for one in data["metrics"]
        ),
        warnings=tuple(data["warnings"]),
        ms=float(data["ms"]),
        rank=data["rank"],
        log=str(data["log"]),
        traceback=str(data["traceback"]),
        attempts=tuple(Outcome(one) for one in data["attempts"]),
        raised=str(data["raised"]),
    )
