"""``dougong-conform explain``: one sentence of the specification, and all that hangs on it."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from dougong_conformance.cli.usage import usage_error
from dougong_conformance.report.tally import requirement_of
from dougong_conformance.requirements import Requirement, all_requirements

_MOST_MATCHES = 5
_PIPE_WIDTH = 120


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("explain", epilog="Exit codes: 0; 2 there is no such requirement.")(explain)


def explain(
    id: Annotated[
        str, typer.Argument(metavar="ID", help="Of a requirement or case, or of a mutant.")
    ],
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print what a requirement says, why it is there, and how to run its check alone."""
    known = all_requirements()
    row = known.get(requirement_of(id.strip())) or _killer_of(id.strip(), known)
    if row is None:
        raise usage_error(_no_such(id, known))
    defects = _defects(row)
    if is_json:
        print(json.dumps(as_json(row, defects), indent=1, ensure_ascii=False))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH)
    console.print(Text(f"{row.id}: {row.title}", style="bold"))
    console.print(Text(row.text))
    for name, text in lines_of(row, defects):
        console.print(Text.assemble((f"{name}: ", "bold"), text))


def lines_of(row: Requirement, defects: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What is told of a requirement, by name."""
    yield "level", _level(row)
    yield "capability", row.capability or "none: every plugin must meet it"
    until = f" to {row.until}" if row.until else ""
    yield "specification", f"since {row.since}{until}"
    needs = row.needs
    memory = f", {needs.memory_mib} MiB" if needs.memory_mib else ""
    yield "needs", f"devices: {needs.devices}, ranks: {needs.ranks}{memory}"
    if row.stage:
        yield "step of a port", f"smoke --stage {row.stage}"
    for name in row.kills:
        yield "rejects mutant", f"{name}: {defects[name]}" if defects.get(name) else name
    if not row.kills:
        yield "rejects mutant", "none of its own"
    if row.redundant_with:
        yield "redundant with", row.redundant_with
    for url in row.because:
        yield "seen in", url
    yield "run it alone", repro(row)


def as_json(row: Requirement, defects: Mapping[str, str]) -> dict[str, Any]:
    """The same as plain data."""
    return {
        "id": row.id,
        "title": row.title,
        "text": row.text,
        "level": row.level.value,
        "is_core": row.is_core,
        "is_provisional": row.is_provisional,
        "capability": row.capability,
        "since": row.since,
        "until": row.until,
        "kills": [{"id": name, "defect": defects.get(name, "")} for name in row.kills],
        "redundant_with": row.redundant_with,
        "because": list(row.because),
        "repro": repro(row),
    }


def repro(row: Requirement) -> str:
    """One command that runs the check of a requirement alone."""
    return f"dougong-conform run --plugin NAME -k {row.id} --out out"


def _level(row: Requirement) -> str:
    if row.is_provisional:
        return f"{row.level.value}, provisional: told, and counted neither as passed nor as failed"
    return f"{row.level.value}, {'Core' if row.is_core else 'Extended'}"


def _no_such(id: str, known: Mapping[str, Requirement]) -> str:
    near = difflib.get_close_matches(id, known, n=_MOST_MATCHES, cutoff=0.5)
    inside = [name for name in known if id.lower() in name.lower() and name not in near]
    close = [*near, *inside][:_MOST_MATCHES]
    hint = f" Close ones: {', '.join(close)}." if close else ""
    return f"there is no requirement {id!r}.{hint}"


def _killer_of(mutant: str, known: Mapping[str, Requirement]) -> Requirement | None:
    """The requirement that is named to reject a mutant."""
    return next((row for row in known.values() if mutant.upper() in row.kills), None)


def _defects(row: Requirement) -> dict[str, str]:
    """What is wrong in each mutant, where the self-test can be loaded (it needs torch)."""
    if not row.kills:
        return {}
    try:
        from dougong_conformance.selftest.mutant import all_mutants

        mutants = all_mutants()
    except ImportError:
        return {}
    return {name: mutants[name].defect for name in row.kills if name in mutants}
