"""How ``dougong doctor`` looks in a terminal; what it says is in its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

_COLOURS = {"chosen": "green", "available": "green", "broken": "red", "refused": "red"}
_PIPE_WIDTH = 160  # where there is no terminal to ask, lines need not be short


def print_report(report: Mapping[str, Any]) -> None:
    """Print what `Report.to_json` holds to the standard output."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH)
    versions = report["versions"]
    console.print(", ".join(f"{name} {version}" for name, version in versions.items()))
    console.print(_plugins(report["plugins"]))
    if any(row["devices"] for row in report["plugins"]):
        console.print(_devices(report["plugins"]))
    if report["kernels"]:
        console.print(_kernels(report["kernels"]))
    if report["tests"]:
        console.print(_tests(report["tests"]))
    if report["selection"]:
        for reason in report["selection"]["reasons"]:
            console.print(escape(reason), style="bold")
    if report["conformance"]:
        told = report["conformance"]
        console.print(escape(f"{told['sentence']}; {told['details']}"))
    for problem in report["problems"]:
        console.print(escape(f"problem: {problem}"), style="red")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", expand=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _plugins(rows: list[dict[str, Any]]) -> Table:
    table = _table("Plugins", "name", "distribution", "version", "verdict", "reason", "path")
    for row in rows:
        texts = [escape(row[key]) for key in ("distribution", "version")]
        name = f"{row['name']} (extension)" if row["is_extension"] else row["name"]
        verdict = f"[{_COLOURS.get(row['verdict'], 'yellow')}]{row['verdict']}[/]"
        table.add_row(escape(name), *texts, verdict, escape(row["reason"]), escape(row["path"]))
    return table


def _devices(rows: list[dict[str, Any]]) -> Table:
    table = _table(
        "Devices", "platform", "index", "name", "uuid", "arch", "memory", "driver", "kind"
    )
    for row in rows:
        for device in row["devices"]:
            memory = device["memory_bytes"]
            table.add_row(
                escape(row["name"]),
                str(device["index"]),
                *(escape(device[key]) for key in ("name", "uuid", "arch")),
                f"{memory / 2**30:.1f} GiB" if memory else "unknown",
                escape(device["driver_version"]),
                "integrated" if device["is_integrated"] else "discrete",
            )
    return table


def _kernels(kernels: Mapping[str, Any]) -> Table:
    table = _table("Kernel libraries of the chosen platform", "library", "state", "reason")
    for library in kernels["loaded"]:
        table.add_row(escape(library), "[green]loaded[/]", "")
    for library, reason in kernels["missing"].items():
        table.add_row(escape(library), "[yellow]missing[/]", escape(reason))
    if not table.rows:
        table.add_row("", "none", "import_kernels() names no library")
    return table


def _tests(results: list[dict[str, Any]]) -> Table:
    table = _table("Tests of the chosen devices", "device", "test", "result", "detail")
    for result in results:
        verdict = "[green]passed[/]" if result["has_passed"] else "[red]failed[/]"
        detail = escape(result["detail"])
        table.add_row(str(result["device_index"]), escape(result["test"]), verdict, detail)
    return table
