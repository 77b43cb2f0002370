"""``dougong-conform waivers suggest``: a skeleton from the failures of a run."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Annotated

import typer

from dougong_conformance.cli.usage import usage_error


def register(app: typer.Typer) -> None:
    """Add the command, which has parts."""
    app.callback()(waivers)
    app.command("suggest")(suggest)
    app.command("check")(check)


def waivers() -> None:
    """Work on a file of waivers: dated promises about one exact failure each."""


def suggest(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Of a run.")] = Path("out"),
) -> None:
    """Print a waiver for every failure of a run; reason, issue and approval are left to you."""
    from dougong_conformance.results import read_record
    from dougong_conformance.runner import waivers as rules

    try:
        record = read_record(folder)
    except (ValueError, OSError) as exc:
        raise usage_error(str(exc)) from exc
    text = rules.suggest(record, datetime.datetime.now(datetime.UTC).date())
    typer.echo(text or "# nothing failed: no waiver is needed\n", nl=False)


def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Waivers.")],
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what is wrong with the form of a file of waivers, without a run."""
    from dougong_conformance.cli.usage import ended
    from dougong_conformance.runner import waivers as rules

    try:
        found = rules.read_waivers(file).waivers
    except rules.BadWaivers as exc:
        raise usage_error(str(exc)) from exc
    problems = {one.id or "(no id)": list(one.problems) for one in found if one.problems}
    if is_json:
        typer.echo(json.dumps(problems, indent=1))
    else:
        for id, texts in problems.items():
            for text in texts:
                typer.echo(f"{id}: {text}")
    if problems:
        raise ended(6, f"{len(problems)} of {len(found)} waivers are wrong")
