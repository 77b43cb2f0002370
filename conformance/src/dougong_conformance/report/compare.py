"""Two runs side by side: what got worse, what got better, and whether they may be compared."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dougong_conformance.outcomes import BAD, Outcome
from dougong_conformance.report.model import Report
from dougong_conformance.report.tally import requirement_of
from dougong_conformance.results import CaseResult

DRIFT = 1.5
"""A metric that grew or shrank by more than this is told."""

NEAR = 0.05
"""Metrics below this share of their limit are noise, whatever they did."""

GONE = "no result"
_ILL = BAD | {Outcome.WAIVER_VIOLATION, Outcome.NOT_RUN}


@dataclass(frozen=True, slots=True)
class Change:
    """One case in two runs.

    Attributes:
        id: Of the case, or what else changed.
        old: Before.
        new: After.
        why: Reason of the new one.
    """

    id: str
    old: str
    new: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What differs.

    Attributes:
        old: Which run.
        new: Which run.
        obstacles: Why the two may not be compared; empty: they may.
        regressions: Cases that ended well and do so no more, withdrawn claims included.
        fixed: Cases that end well now.
        withdrawn: Of the regressions, those that are not claimed any more.
        other: Cases that ended badly and do so in another way.
        added: Cases that only the new run has, where they do not pass.
        waivers: Waivers that came, went or changed.
        drift: Metrics that moved by more than `DRIFT`.
        environment: Software, devices, claims, settings.
        suite: Version, specification, requirements.
    """

    old: str
    new: str
    obstacles: tuple[str, ...] = ()
    regressions: tuple[Change, ...] = ()
    fixed: tuple[Change, ...] = ()
    withdrawn: tuple[str, ...] = ()
    other: tuple[Change, ...] = ()
    added: tuple[Change, ...] = ()
    waivers: tuple[Change, ...] = ()
    drift: tuple[Change, ...] = ()
    environment: tuple[Change, ...] = field(default=())
    suite: tuple[Change, ...] = field(default=())

    @property
    def verdict(self) -> str:
        """Comparable, or not and why."""
        if self.obstacles:
            return f"not comparable: {'; '.join(self.obstacles)}"
        return "comparable"

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        found = asdict(self)
        return {"verdict": self.verdict, "is_comparable": not self.obstacles, **found}


def compare(old: Report, new: Report) -> Comparison:
    """Hold a run against an earlier one."""
    before = {one.id: one for one in old.results if not one.is_provisional}
    after = {one.id: one for one in new.results if not one.is_provisional}
    lost = [*_regressions(before, after, new)]
    return Comparison(
        old=_name(old),
        new=_name(new),
        obstacles=tuple(_obstacles(old, new)),
        regressions=tuple(lost),
        fixed=tuple(_fixed(before, after)),
        withdrawn=tuple(one.id for one in lost if one.new in {"not_claimed", "case dropped"}),
        other=tuple(_other(before, after)),
        added=tuple(_added(before, after)),
        waivers=tuple(_waivers(before, after)),
        drift=tuple(_drift(before, after)),
        environment=tuple(_environment(old, new)),
        suite=tuple(_suite(old, new)),
    )


def _name(report: Report) -> str:
    header = report.record.header
    return f"{report.subject}, {header.mode} of {header.started or 'an unknown day'}"


def _obstacles(old: Report, new: Report) -> Iterator[str]:
    first, second = old.record.header, new.record.header
    if first.plugin.name != second.plugin.name:
        yield f"they are of platforms {first.plugin.name} and {second.plugin.name}"
    if first.spec_version != second.spec_version:
        yield f"they are by specifications {first.spec_version} and {second.spec_version}"
    if first.is_double != second.is_double:
        yield "one ran on a device double and the other one on a device"
    if first.is_runtime_replaced != second.is_runtime_replaced:
        yield "the vendor's runtime was replaced in one of them"
    if first.selection != second.selection:
        yield "they were not asked for the same cases"
    for name, report in (("old", old), ("new", new)):
        if report.record.footer.exit_code in {4, 5, 7}:
            code = report.record.footer.exit_code
            yield f"the {name} run proves nothing: it ended with exit code {code}"


def _regressions(
    before: Mapping[str, CaseResult], after: Mapping[str, CaseResult], new: Report
) -> Iterator[Change]:
    missing = set(new.record.footer.missing)
    for id, was in before.items():
        if was.outcome is not Outcome.PASS:
            continue
        now = after.get(id)
        if now is not None:
            if now.outcome is not Outcome.PASS:
                yield Change(id, was.outcome.value, now.outcome.value, now.reason)
        elif id in missing:
            yield Change(id, was.outcome.value, GONE, "required, and without a result")
        elif requirement_of(id) in new.by_id:
            why = "the new run has no such case: its claim was withdrawn"
            yield Change(id, was.outcome.value, "case dropped", why)


def _fixed(before: Mapping[str, CaseResult], after: Mapping[str, CaseResult]) -> Iterator[Change]:
    for id, now in after.items():
        was = before.get(id)
        is_better = was is not None and was.outcome not in {Outcome.PASS, Outcome.NOT_CLAIMED}
        if was is not None and is_better and now.outcome is Outcome.PASS:
            yield Change(id, was.outcome.value, now.outcome.value)


def _other(before: Mapping[str, CaseResult], after: Mapping[str, CaseResult]) -> Iterator[Change]:
    for id, now in after.items():
        was = before.get(id)
        if was is None or was.outcome is now.outcome or Outcome.PASS in (was.outcome, now.outcome):
            continue
        yield Change(id, was.outcome.value, now.outcome.value, now.reason)


def _added(before: Mapping[str, CaseResult], after: Mapping[str, CaseResult]) -> Iterator[Change]:
    for id, now in after.items():
        if id not in before and now.outcome in _ILL:
            yield Change(id, GONE, now.outcome.value, now.reason)


def _waivers(before: Mapping[str, CaseResult], after: Mapping[str, CaseResult]) -> Iterator[Change]:
    for id in dict.fromkeys((*before, *after)):
        old = before[id].waiver if id in before else ""
        new = after[id].waiver if id in after else ""
        if old != new:
            yield Change(id, old or "none", new or "none")


def _drift(before: Mapping[str, CaseResult], after: Mapping[str, CaseResult]) -> Iterator[Change]:
    for id, now in after.items():
        was = {one.name: one for one in before[id].metrics} if id in before else {}
        for metric in now.metrics:
            old = was.get(metric.name)
            if old is None or not metric.limit:
                continue
            if max(old.value, metric.value) / metric.limit < NEAR or old.value == metric.value:
                continue
            factor = math.inf if old.value <= 0 else metric.value / old.value
            if not 1 / DRIFT <= factor <= DRIFT:
                told = f"{metric.name}, limit {metric.limit:g}"
                yield Change(id, f"{old.value:.3g}", f"{metric.value:.3g}", told)


def _environment(old: Report, new: Report) -> Iterator[Change]:
    first, second = (_flat(one.record.header.to_json()) for one in (old, new))
    for name in dict.fromkeys((*first, *second)):
        if first.get(name) != second.get(name) and not name.startswith(_NOT_ENVIRONMENT):
            yield Change(name, first.get(name, "none"), second.get(name, "none"))


def _suite(old: Report, new: Report) -> Iterator[Change]:
    first, second = old.record.header, new.record.header
    for name in ("suite_version", "suite_sha256", "spec_version"):
        one, other = getattr(first, name), getattr(second, name)
        if one != other:
            yield Change(name, one[:16], other[:16])
    for id in new.by_id.keys() - old.by_id.keys():
        yield Change(id, "no requirement", new.by_id[id].level.value)
    for id in old.by_id.keys() - new.by_id.keys():
        yield Change(id, old.by_id[id].level.value, "no requirement")


_NOT_ENVIRONMENT = ("started", "suite_", "spec_version", "mode", "selection", "waivers_")
_PARTS = frozenset({"plugin", "claims", "versions", "environment", "limits", "seeds", "selection"})


def _flat(header: Mapping[str, Any]) -> dict[str, str]:
    """One line per fact; parts by the names within them."""
    found: dict[str, str] = {}
    for name, value in header.items():
        if name in _PARTS and isinstance(value, Mapping):
            found |= {f"{name}.{key}": _text(one) for key, one in value.items()}
        elif name != "facts":
            found[name] = _text(value)
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
