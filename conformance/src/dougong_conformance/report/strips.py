"""How near to the edge: what was measured over what is allowed, on a log axis."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dougong_conformance.report.model import Report

LOWEST, HIGHEST = -3.0, 2.0
"""Powers of ten between which ratios are drawn; what lies beyond is drawn at the edge."""

TICKS = (
    ("0.001", -3.0),
    ("0.01", -2.0),
    ("0.1", -1.0),
    ("the limit", 0.0),
    ("10", 1.0),
    ("100", 2.0),
)
SHAPES = ("circle", "square", "diamond", "ring")
NO_DTYPE = "triangle"


@dataclass(frozen=True, slots=True)
class Dot:
    """One measurement.

    Attributes:
        at: Place on the axis, in hundredths of its length.
        shape: Of its dtype.
        told: In words.
        is_over: It is above its limit.
    """

    at: float
    shape: str
    told: str
    is_over: bool


@dataclass(frozen=True, slots=True)
class Strip:
    """All measurements of one requirement.

    Attributes:
        requirement: Its id.
        dots: In order of dtype.
        worst: Largest ratio.
        told: The worst one in words.
    """

    requirement: str
    dots: tuple[Dot, ...]
    worst: float
    told: str

    @property
    def is_over(self) -> bool:
        """Something is above its limit."""
        return any(dot.is_over for dot in self.dots)


def shapes(dtypes: tuple[str, ...]) -> dict[str, str]:
    """Shape of every dtype; those beyond the first three share one."""
    return {name: SHAPES[min(index, len(SHAPES) - 1)] for index, name in enumerate(dtypes)}


def strips(report: Report, shape_of: dict[str, str]) -> list[Strip]:
    """Requirements with measurements that have a limit, nearest to it first."""
    found: dict[str, list[tuple[float, Dot, str]]] = {}
    for one in report.results:
        for metric in one.metrics:
            if metric.limit is None or not metric.limit > 0:
                continue
            ratio = metric.value / metric.limit
            told = f"{number(metric.value)} of {number(metric.limit)}"
            where = f"{metric.name}{f', {one.dtype}' if one.dtype else ''}"
            dot = Dot(
                at=position(ratio),
                shape=shape_of.get(one.dtype, NO_DTYPE),
                told=f"{where}: {told}",
                is_over=not ratio <= 1,
            )
            found.setdefault(one.requirement, []).append((ratio, dot, f"{told} ({where})"))
    rows = []
    for requirement, some in found.items():
        worst, _, told = max(some, key=lambda one: _rank(one[0]))
        rows.append(Strip(requirement, tuple(dot for _, dot, _ in some), worst, told))
    return sorted(rows, key=lambda one: (-_rank(one.worst), one.requirement))


def position(ratio: float) -> float:
    """Place of a ratio on the axis, 0 to 100."""
    if math.isnan(ratio) or ratio == math.inf:
        return 100.0
    if ratio <= 0:
        return 0.0
    share = (math.log10(ratio) - LOWEST) / (HIGHEST - LOWEST)
    return round(100 * min(1.0, max(0.0, share)), 2)


def number(value: float) -> str:
    """Short, in words where it is none."""
    if math.isnan(value):
        return "not a number"
    return "infinite" if math.isinf(value) else f"{value:.3g}"


def _rank(ratio: float) -> float:
    return math.inf if math.isnan(ratio) else ratio
