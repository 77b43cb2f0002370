"""What run, smoke and certify share: run, write, tell, end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dougong_conformance.cli.usage import ended, usage_error
from dougong_conformance.cli.watching import counts_text, make_console, watch
from dougong_conformance.outcomes import BAD, Outcome
from dougong_conformance.requirements import Requirement
from dougong_conformance.results import CaseResult, RunRecord, write_record
from dougong_conformance.runner.run import RunRequest, requirements_of, run
from dougong_conformance.runner.selection import BadExpression, matches
from dougong_conformance.runner.verdict import EXIT_SUITE
from dougong_conformance.runner.waivers import BadWaivers

_MARKS: Mapping[str, str] = {
    "passed": "[green]✓ passed[/]",
    "failed": "[bold red]✗ failed[/]",
    "incomplete": "[yellow]… incomplete[/]",
    "provisional": "[dim]provisional[/]",
    "not_claimed": "[dim]not claimed[/]",
}


def execute(request: RunRequest, *, is_json: bool) -> typer.Exit:
    """Run, write the report, tell the verdict; raise what this returns."""
    check_expression(request.selection.expression)
    console = make_console(is_error=is_json)
    watcher = watch(console, is_quiet=is_json)
    if not is_json:
        console.print(f"{request.plugin.name} ({request.plugin.wheel}), {request.mode}")
    try:
        record = run(request, watcher)
    except BadWaivers as exc:
        return usage_error(str(exc))
    finally:
        watcher.close()
    record = write_everything(record, request)
    if is_json:
        print(json.dumps(record.to_json(), indent=1))
    else:
        print_verdict(console, record, requirements_of(request.extension), request.folder)
    footer = record.footer
    where = "" if footer.exit_code == EXIT_SUITE else f"; see {request.folder / 'report.md'}"
    return ended(footer.exit_code, footer.exit_reason + where)


def check_expression(expression: str) -> None:
    """Refuse words after ``-k`` that cannot be understood, before anything is started.

    Raises:
        typer.Exit: They cannot; it was said.
    """
    try:
        matches(expression, "")
    except BadExpression as exc:
        raise usage_error(str(exc)) from exc


def write_everything(record: RunRecord, request: RunRequest) -> RunRecord:
    """Write record and report; a report that cannot be written is a fault of the suite."""
    from dougong_conformance.report.write import write_all

    try:
        write_record(record, request.folder)
        write_all(record, request.folder, requirements_of(request.extension))
    except Exception as exc:  # noqa: BLE001 - whatever it is, the run must not end as a good one
        reason = f"the report could not be written: {type(exc).__name__}: {exc}"
        problems = (*record.footer.suite_problems, reason)
        footer = replace(
            record.footer, exit_code=EXIT_SUITE, exit_reason=reason, suite_problems=problems
        )
        return replace(record, footer=footer)
    return record


def print_verdict(
    console: Console, record: RunRecord, rows: Mapping[str, Requirement], folder: Path
) -> None:
    """Failures with what the specification says, then a line per profile, then the rest."""
    for one in record.results:
        if one.outcome in BAD or one.outcome is Outcome.WAIVER_VIOLATION:
            print_failure(console, one, rows.get(one.requirement))
    console.print(profile_table(record))
    header, footer = record.header, record.footer
    for title, lines in (
        ("tampering" if header.mode == "certify" else "certify would refuse", header.tampering),
        ("patched", header.patches),
        ("waivers", footer.waiver_problems),
        ("suite", footer.suite_problems),
    ):
        for line in lines:
            console.print(f"[yellow]{title}:[/] {escape(line)}")
    for one in record.results:
        for warning in one.warnings:
            console.print(f"[yellow]warning:[/] {escape(f'{one.id}: {warning}')}")
    core = footer.core.value.replace("_", " ")
    counts = counts_text(footer.counts) or "no result"
    console.print(f"core: [bold]{core}[/]; {counts}; {footer.wall_s:.0f} s")
    console.print(escape(f"report: {folder / 'report.html'}"))


def print_failure(console: Console, one: CaseResult, row: Requirement | None) -> None:
    """What was asked for, what came, and how to see it again."""
    console.print(f"[bold red]✗ {one.outcome.value}[/] [bold]{escape(one.id)}[/]")
    if row is not None:
        console.print(escape(f"    asked:    {row.text}"))
    console.print(escape(f"    measured: {one.reason}"))
    console.print(escape(f"    repeat:   {one.repro}"))


def profile_table(record: RunRecord) -> Table:
    """One line per profile that has requirements."""
    table = Table(title="Profiles", title_justify="left")
    for column in ("profile", "verdict", "required", "outcomes", "missing", "not selected"):
        table.add_column(column, overflow="fold")
    for name, one in record.footer.profiles.items():
        if one.required or one.provisional:
            table.add_row(
                name,
                _MARKS[one.verdict.value],
                str(one.required),
                counts_text(one.outcomes),
                str(one.missing or ""),
                str(one.not_selected or ""),
            )
    return table
