"""How ``dougong bench serve`` looks in a terminal; what it says is in its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dougong.cli.bench_record import BenchRecord
from dougong.cli.bench_serving.results import (
    LATENCIES,
    SHARES,
    errors_of,
    latencies_of,
    spelt,
    tokens_over_time,
)
from dougong.cli.bench_serving.run import ServeRun
from dougong.cli.bench_view import shown_name, shown_value, shown_versions

_HEIGHTS = " ▁▂▃▄▅▆▇█"
_NUM_COLUMNS = 64
_NUM_ROWS = 8
_BAR = 40
_MOST_ERRORS = 5


def print_serve_record(record: BenchRecord, run: ServeRun) -> None:
    """Tables, then plots."""
    console = Console(highlight=False)
    console.print(_title(record), soft_wrap=True)
    console.print(_totals(record))
    console.print(_latencies(record.results))
    for line in (*_rate_lines(run), *_gap_lines(run)):
        console.print(line, soft_wrap=True)
    for error, count in list(errors_of(run).items())[:_MOST_ERRORS]:
        console.print(f"[red]{count} x[/] {escape(error)}")
    console.print(shown_versions(record))


def _title(record: BenchRecord) -> str:
    work = record.workload
    return (
        f"serve: {escape(str(work['model']))} at {escape(record.platform)}, {work['route']}, "
        f"{work['num_requests']} requests of {work['input_len']} + {work['output_len']} tokens, "
        f"{work['request_rate']} per second, {work['concurrency'] or 'any number'} at once"
    )


def _totals(record: BenchRecord) -> Table:
    table = Table()
    table.add_column("measured")
    table.add_column("value", justify="right")
    for name, value in record.results.items():
        if not name.endswith(tuple(f"_{one}_s" for one in LATENCIES)):
            table.add_row(shown_name(name), shown_value(name, value))
    return table


def _latencies(results: Mapping[str, float]) -> Table:
    table = Table()
    table.add_column("latency")
    heads = ("mean", *map(spelt, SHARES))
    for head in heads:
        table.add_column(head, justify="right")
    for latency in LATENCIES:
        names = [f"{head}_{latency}_s" for head in heads]
        if names[0] in results:
            table.add_row(
                latency.replace("_", " "), *(shown_value(name, results[name]) for name in names)
            )
    return table


def _rate_lines(run: ServeRun) -> list[str]:
    rates = tokens_over_time(run, _NUM_COLUMNS)
    highest = max(rates)
    if not highest:
        return []
    return [
        f"output tokens/s over the {run.seconds:.1f} s, up to {highest:,.0f}",
        columns(rates),
    ]


def _gap_lines(run: ServeRun) -> list[str]:
    lines = []
    whole = [answer for answer in run.answers if answer.error is None]
    for name, values in latencies_of(whole).items():
        if name in LATENCIES[:2] and values:
            lines += [f"{name.replace('_', ' ')}, ms", *histogram(values, _NUM_ROWS)]
    return lines


def columns(values: Sequence[float]) -> str:
    """One character each, as high as the value; none of them is negative."""
    highest = max(values) or 1.0
    most = len(_HEIGHTS) - 1
    return "".join(_HEIGHTS[min(most, round(value / highest * most))] for value in values)


def histogram(ordered: Sequence[float], num_rows: int) -> list[str]:
    """A bar for each range of values, in milliseconds; the slowest hundredth shares the last one.

    Args:
        ordered: Seconds, sorted; never empty.
        num_rows: Ranges.
    """
    least, most = ordered[0], ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    width = (most - least) / num_rows or 1e-6
    counts = [0] * num_rows
    for value in ordered:
        counts[min(num_rows - 1, int((value - least) / width))] += 1
    highest = max(counts)
    return [
        f"{(least + row * width) * 1e3:10.1f} {'█' * round(count / highest * _BAR):<{_BAR}} {count}"
        for row, count in enumerate(counts)
    ]
