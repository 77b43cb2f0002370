"""Medians and within-round ratios, as tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.peers.points import parse_point, rate, unit_of
from benchmarks.peers.protocol import Measurement

VLLM_BEST = "vllm-best"
"""Stands for the fastest vLLM setting of each round, so that a poor setting never flatters us."""


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement with its circumstances.

    Attributes:
        contender: Name.
        point: As `benchmarks.peers.points.name_of` writes it.
        round_index: Counted from 0.
        load_average: Over the minute before.
        steal_s: CPU seconds the hypervisor gave to others meanwhile.
        measurement: What the runner answered.
    """

    contender: str
    point: str
    round_index: int
    load_average: float
    steal_s: float
    measurement: Measurement

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return rate(parse_point(self.point), self.measurement)


def rates(results: Sequence[Result]) -> dict[str, dict[str, dict[int, float]]]:
    """``[point][contender][round] -> tokens/s``, with `VLLM_BEST` where several vLLMs ran."""
    table: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for result in results:
        table[result.point][result.contender][result.round_index] = result.rate
    for by_contender in table.values():
        vllms = [by_round for name, by_round in by_contender.items() if name.startswith("vllm")]
        if len(vllms) > 1:
            best = {r: max(v[r] for v in vllms if r in v) for v in vllms for r in v}
            by_contender[VLLM_BEST] = best
    return table


def ratios(ours: Mapping[int, float], theirs: Mapping[int, float]) -> list[float]:
    """Ours / theirs, one per round both took part in."""
    return [ours[r] / theirs[r] for r in sorted(ours.keys() & theirs.keys())]


def print_report(
    console: Console, results: Sequence[Result], record: Mapping[str, Any], *, baseline: str
) -> None:
    """One table per point, then the facts about machine and contenders."""
    for point, by_contender in rates(results).items():
        parsed = parse_point(point)
        table = Table(title=f"{point}: {unit_of(parsed)}")
        for column in ("contender", "median", "min", "max", f"{baseline} / it", "min", "max"):
            table.add_column(column, justify="left" if column == "contender" else "right")
        ours = by_contender.get(baseline, {})
        for name, by_round in sorted(by_contender.items()):
            speeds = sorted(by_round.values())
            row = [name, *(f"{x:.1f}" for x in (median(speeds), speeds[0], speeds[-1]))]
            if found := ratios(ours, by_round):
                row += [f"{x:.2f}" for x in (median(found), min(found), max(found))]
            table.add_row(*row)
        console.print(table)
    console.print("machine:", record["machine"])
    for name, facts in record["contenders"].items():
        console.print(f"{name}:", facts)
