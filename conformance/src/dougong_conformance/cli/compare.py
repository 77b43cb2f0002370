"""``dougong-conform compare``: what changed between two runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dougong_conformance.cli.usage import cannot_read, ended, usage_error
from dougong_conformance.report.compare import DRIFT, Change, Comparison
from dougong_conformance.report.compare import compare as compare_reports
from dougong_conformance.report.document import read_document

_PIPE_WIDTH = 140
_FAILED, _INCOMPLETE = 1, 3


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "compare",
        epilog="Exit codes: 0; with --fail-on regression: 1 something got worse, 3 the two runs "
        "cannot be compared; 2 a file is no report.",
    )(compare)


def compare(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="report.json, or its folder.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="report.json, or its folder.")],
    fail_on: Annotated[
        str | None, typer.Option("--fail-on", help="regression: end with 1 if there is one.")
    ] = None,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what got worse, what got better, and whether the two may be compared."""
    if fail_on not in {None, "regression"}:
        raise usage_error(f"--fail-on {fail_on} is unknown. The only one is: regression.")
    try:
        found = compare_reports(read_document(old), read_document(new))
    except (ValueError, OSError) as error:
        raise cannot_read(error) from error
    if is_json:
        print(json.dumps(found.to_json(), indent=1, ensure_ascii=False))
    else:
        print_comparison(found)
    if fail_on:
        _end(found)


def print_comparison(found: Comparison) -> None:
    """Print it as tables to the standard output."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH)
    console.print(Text(f"old: {found.old}"))
    console.print(Text(f"new: {found.new}"))
    console.print(Text(found.verdict, style="yellow" if found.obstacles else "green"))
    parts = (
        ("✗ regressions", found.regressions, "red"),
        ("✓ fixed", found.fixed, "green"),
        ("bad in another way", found.other, "yellow"),
        ("new cases that do not pass", found.added, "yellow"),
        ("waivers", found.waivers, "yellow"),
        (f"metrics that moved by more than {DRIFT:g}", found.drift, ""),
        ("environment", found.environment, ""),
        ("suite", found.suite, ""),
    )
    for title, changes, style in parts:
        if changes:
            console.print(_table(title, changes, style))
    console.print(
        f"{_counted(found.regressions)}, of them {len(found.withdrawn)} newly not claimed; "
        f"{len(found.fixed)} fixed"
    )


def _counted(changes: Sequence[Change]) -> str:
    return f"{len(changes)} regression{'' if len(changes) == 1 else 's'}"


def _table(title: str, changes: Sequence[Change], style: str) -> Table:
    table = Table(title=f"{title} ({len(changes)})", title_justify="left", title_style=style)
    for name in ("what", "old", "new", "why"):
        table.add_column(name, overflow="fold")
    for one in changes:
        table.add_row(*(Text(text) for text in (one.id, one.old, one.new, one.why)))
    return table


def _end(found: Comparison) -> None:
    """The exit code of ``--fail-on regression``; a gate that cannot compare is not green."""
    if found.obstacles:
        raise ended(_INCOMPLETE, found.verdict)
    if found.regressions:
        raise ended(_FAILED, f"{_counted(found.regressions)}; first {found.regressions[0].id}")
