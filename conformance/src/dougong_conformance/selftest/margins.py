"""How far every limit lies from what legal plugins show, and from its gentlest mutant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dougong_conformance.outcomes import Outcome
from dougong_conformance.selftest.gate import CaseEnd, GateReport

_MAX, _RMS = ": max error", ": rms error"


@dataclass(frozen=True, slots=True)
class Extreme:
    """One number, and who showed it.

    Attributes:
        value: Of the metric.
        limit: It was held against.
        who: Witness or mutant.
        case: Of the check.
    """

    value: float
    limit: float
    who: str
    case: str


@dataclass(frozen=True, slots=True)
class Margin:
    """Of one metric.

    Attributes:
        metric: Its name.
        legal: Largest that a witness, or the good plugin under it, shows.
        rms: Largest root mean square beside it; 0: it has none.
        mutant: Smallest that a mutant shows which this limit kills; ``None``: it kills none.
    """

    metric: str
    legal: Extreme
    rms: float
    mutant: Extreme | None

    @property
    def below(self) -> float:
        """Limit over the worst legal value."""
        return self.legal.limit / self.legal.value if self.legal.value else float("inf")

    @property
    def above(self) -> float:
        """The gentlest mutant's value over the limit."""
        return self.mutant.value / self.mutant.limit if self.mutant else float("inf")


def margins(report: GateReport) -> tuple[Margin, ...]:
    """Of every metric with a limit that witnesses show, by name; times are left out."""
    legal: dict[str, Extreme] = {}
    rms: dict[str, float] = {}
    for witness in report.witnesses:
        for end in witness.ends:
            for name, value, limit in _limited(end):
                found = Extreme(value, limit, witness.id, end.id)
                if name not in legal or value / limit > legal[name].value / legal[name].limit:
                    legal[name] = found
            for metric in end.metrics:
                if metric.name.endswith(_RMS):
                    name = metric.name.removesuffix(_RMS) + _MAX
                    rms[name] = max(rms.get(name, 0.0), metric.value)
    gentlest: dict[str, Extreme] = {}
    for mutant in report.mutants:
        if mutant.verdict != "killed":
            continue
        for end in mutant.ends:
            for name, value, limit in _limited(end):
                is_killed_by_it = end.outcome is Outcome.FAIL and value > limit
                if is_killed_by_it and (name not in gentlest or value < gentlest[name].value):
                    gentlest[name] = Extreme(value, limit, mutant.id, end.id)
    return tuple(
        Margin(name, legal[name], rms.get(name, 0.0), gentlest.get(name)) for name in sorted(legal)
    )


def _limited(end: CaseEnd) -> Iterator[tuple[str, float, float]]:
    for metric in end.metrics:
        if metric.limit and not metric.name.endswith("number of tokens"):
            yield metric.name, metric.value, metric.limit
