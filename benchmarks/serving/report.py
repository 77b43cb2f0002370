"""Medians and within-round ratios of servers, as one table per number of clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.serving.servers import OURS

NUMBERS: Mapping[str, str] = {
    "output_tokens_per_s": "output tokens/s",
    "p50_time_to_first_token_s": "TTFT p50, ms",
    "p90_time_to_first_token_s": "TTFT p90, ms",
    "p99_time_to_first_token_s": "TTFT p99, ms",
    "p50_inter_token_s": "ITL p50, ms",
    "p90_inter_token_s": "ITL p90, ms",
    "p99_inter_token_s": "ITL p99, ms",
    "p50_time_per_token_s": "TPOT p50, ms",
    "p99_end_to_end_s": "end to end p99, ms",
}
"""Shown, of everything that a measurement has: a rate, and waiting times."""
BEST = "best other"
"""The best of all other servers, by number and round, which flatters them a little and never us."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One measurement of one server.

    Attributes:
        server: Name.
        concurrency: Clients at once.
        round_index: Counted from 0.
        load_average: Over the minute before.
        steal_s: CPU seconds the hypervisor gave to others meanwhile.
        results: As `dougong.cli.bench_serving.results.results_of` has them.
    """

    server: str
    concurrency: int
    round_index: int
    load_average: float
    steal_s: float
    results: Mapping[str, float]


def print_report(console: Console, turns: Sequence[Turn]) -> None:
    """One table per number of clients: the median of each server, and ours over theirs."""
    for concurrency in sorted({turn.concurrency for turn in turns}):
        mine = [turn for turn in turns if turn.concurrency == concurrency]
        names = sorted({turn.server for turn in mine}, key=lambda name: (name != OURS, name))
        others = [name for name in names if name != OURS]
        shown = [*others, BEST] if len(others) > 1 else others
        table = Table(title=f"{concurrency} clients: median over rounds; {OURS} / it (min, max)")
        table.add_column("measured")
        for name in [OURS, *shown]:
            table.add_column(name, justify="right")
        for number, head in NUMBERS.items():
            values = values_of(mine, number)
            row = [head, _median(number, values.get(OURS, {}))]
            table.add_row(*row, *(_compared(number, values, name) for name in shown))
        console.print(table)


def values_of(turns: Sequence[Turn], number: str) -> dict[str, dict[int, float]]:
    """``[server][round]``, with `BEST` beside them."""
    values: dict[str, dict[int, float]] = {}
    for turn in turns:
        if number in turn.results:
            values.setdefault(turn.server, {})[turn.round_index] = turn.results[number]
    others = [by_round for name, by_round in values.items() if name != OURS]
    best = max if is_rate(number) else min
    rounds = {index for by_round in others for index in by_round}
    values[BEST] = {i: best(one[i] for one in others if i in one) for i in rounds}
    return values


def is_rate(number: str) -> bool:
    """Whether more is better; for all others less is."""
    return number.endswith("_per_s")


def ratios(number: str, values: Mapping[str, Mapping[int, float]], name: str) -> list[float]:
    """Ours / theirs, one per round both took part in."""
    ours, theirs = values.get(OURS, {}), values.get(name, {})
    return [ours[r] / theirs[r] for r in sorted(ours.keys() & theirs.keys()) if theirs[r]]


def summary(turns: Sequence[Turn]) -> dict[str, dict[str, float]]:
    """``[clients][number]``: the median ratio to the best other, for a record."""
    told: dict[str, dict[str, float]] = {}
    for concurrency in sorted({turn.concurrency for turn in turns}):
        mine = [turn for turn in turns if turn.concurrency == concurrency]
        found = {number: ratios(number, values_of(mine, number), BEST) for number in NUMBERS}
        told[str(concurrency)] = {
            number: median(several) for number, several in found.items() if several
        }
    return told


def _median(number: str, by_round: Mapping[int, float]) -> str:
    if not by_round:
        return "-"
    value = median(by_round.values())
    return f"{value:.1f}" if is_rate(number) else f"{value * 1e3:.1f}"


def _compared(number: str, values: Mapping[str, Mapping[int, float]], name: str) -> str:
    found = ratios(number, values, name)
    shown = _median(number, values.get(name, {}))
    if not found:
        return shown
    return f"{shown}  {median(found):.2f} ({min(found):.2f}, {max(found):.2f})"


def as_json(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """Plain data."""
    return [
        {name: getattr(turn, name) for name in Turn.__slots__} | {"results": dict(turn.results)}
        for turn in turns
    ]
