"""``dougong-conform repro``: one case again, alone, where a debugger reaches it."""

from __future__ import annotations

import json
import pdb
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dougong_conformance.cli.usage import cannot_read, ended, usage_error

if TYPE_CHECKING:
    from dougong_conformance.check import Case
    from dougong_conformance.subject import Subject

NOTICE = "DEVELOPER MODE: not a conformance result"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("repro", epilog="Exit codes: 0 it passes; 1 it does not; 2 usage.")(repro)


def repro(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Of a run.")],
    case: Annotated[str, typer.Argument(metavar="CASE", help="As the report names it.")],
    has_debugger: Annotated[
        bool, typer.Option("--pdb", help="Stop in the debugger where it fails.")
    ] = False,
    seed: Annotated[
        str, typer.Option(metavar="SEED", help="As a search told it: other drawn inputs.")
    ] = "",
    is_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run one case in one process, plugin and check together, and show how it ends."""
    from dougong_conformance.results import read_record

    try:
        record = read_record(folder)
    except (ValueError, OSError) as exc:
        raise cannot_read(exc) from exc
    from dougong_conformance.kit.generate import set_hidden_seed
    from dougong_conformance.runner.cases import run_case
    from dougong_conformance.runner.in_process import opened
    from dougong_conformance.runner.protocol import end_to_json
    from dougong_conformance.session import load_plugin

    one = _find(case, tuple(record.header.facts.get("dtypes", ())))
    set_hidden_seed(seed)
    print(NOTICE, file=sys.stderr)
    with opened(load_plugin(record.header.plugin.name)) as (subject, _):
        if has_debugger:
            _debug(one, subject)
        end = run_case(one, subject)
    if is_json:
        print(json.dumps(end_to_json(end), indent=1))
    else:
        _print(end_to_json(end))
    raise ended(0 if end.outcome.value in ("pass", "not_claimed") else 1, end.reason)


def _find(id: str, dtypes: tuple[str, ...]) -> Case:
    from dougong_conformance.check import all_checks, cases_of

    cases = {case.id: case for one in all_checks().values() for case in cases_of(one, dtypes)}
    if id not in cases:
        near = [one for one in cases if id.partition("[")[0] in one]
        hint = f"; near: {', '.join(near[:5])}" if near else ""
        raise usage_error(f"no case has the id {id!r}{hint}")
    return cases[id]


def _debug(case: Case, subject: Subject) -> None:
    """Run it with nothing between the check and the debugger."""
    from dougong_conformance.judging import Judge

    arguments = (subject, Judge(), case.dtype) if case.dtype else (subject, Judge())
    try:
        case.check.run(*arguments)
    except Exception:  # noqa: BLE001 - whatever it is, it is looked at
        traceback.print_exc()
        pdb.post_mortem(sys.exc_info()[2])


def _print(end: dict[str, Any]) -> None:
    print(f"{end['id']}: {end['outcome']}" + (f": {end['reason']}" if end["reason"] else ""))
    for metric in end["metrics"]:
        limit = "" if metric["limit"] is None else f" (at most {metric['limit']})"
        print(f"  {metric['name']}: {metric['value']}{limit}")
    for warning in end["warnings"]:
        print(f"  warning: {warning}")
    if end["traceback"]:
        print(end["traceback"], end="")
