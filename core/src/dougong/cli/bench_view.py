"""How ``dougong bench`` looks in a terminal; what it says is in its JSON."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dougong.cli.bench_record import BenchRecord, Comparison
from dougong.cli.measured import gib

_COLOURS = {True: "green", False: "red", None: "default"}


def print_record(record: BenchRecord) -> None:
    """One measurement."""
    work = record.workload
    table = Table(
        title=f"{work['kind']}: {escape(str(work['model']))}, {work['num_requests']} requests of "
        f"{work['input_len']} + {work['output_len']} tokens; {escape(record.platform)}, "
        f"{record.dtype}",
        title_justify="left",
    )
    table.add_column("measured")
    table.add_column("value", justify="right")
    for name, value in (*record.results.items(), *record.memory.items()):
        table.add_row(shown_name(name), shown_value(name, value))
    console = Console(highlight=False)
    console.print(table)
    console.print(shown_versions(record))


def print_comparison(rows: list[Comparison], now: BenchRecord, earlier: BenchRecord) -> None:
    """Two measurements of the same work."""
    table = Table(title="now against earlier", title_justify="left")
    table.add_column("measured")
    for column in ("now", "earlier", "ratio"):
        table.add_column(column, justify="right")
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.3f}"
        table.add_row(
            shown_name(row.name),
            shown_value(row.name, row.now),
            shown_value(row.name, row.earlier),
            f"[{_COLOURS[row.is_better]}]{ratio}[/]",
        )
    console = Console(highlight=False)
    console.print(table)
    console.print(f"now:     {shown_versions(now)}; {escape(now.platform)}, {now.dtype}")
    console.print(
        f"earlier: {shown_versions(earlier)}; {escape(earlier.platform)}, {earlier.dtype}"
    )


def shown_versions(record: BenchRecord) -> str:
    """What was measured with."""
    return ", ".join(f"{name} {version}" for name, version in record.versions.items())


def shown_name(name: str) -> str:
    """A number's name, without its unit."""
    for ending in ("_per_s", "_s", "_bytes", "_fraction"):
        if name.endswith(ending):
            name = name.removesuffix(ending)
            break
    return name.replace("_", " ")


def shown_value(name: str, value: float) -> str:
    """A number in the unit that its name ends with."""
    if name.endswith("_per_s"):
        return f"{value:,.1f} /s"
    if name.endswith("_s"):
        return f"{value * 1e3:,.1f} ms" if value < 1 else f"{value:,.2f} s"
    if name.endswith("_bytes"):
        return gib(value)
    if name.endswith("_fraction"):
        return f"{value:.2%}"
    return f"{value:,.0f}"
