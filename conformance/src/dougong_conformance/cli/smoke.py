"""``dougong-conform smoke``: whether a port works at all, one step at a time."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from dougong_conformance.cli.usage import usage_error


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("smoke", epilog="Exit codes: see dougong-conform --help.")(smoke)


def smoke(
    plugin: Annotated[
        str | None, typer.Option(metavar="NAME", help="Plugin; not needed where only one is.")
    ] = None,
    stage: Annotated[
        str,
        typer.Option(metavar="STEP", help="Only probe, memory, ops, attention, worker or engine."),
    ] = "",
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the report; else a new one.")
    ] = None,
    is_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """Run a few checks of each step of a new port, in their order, in under a minute."""
    from dougong_conformance.cli.choice import choose_plugin
    from dougong_conformance.cli.running import execute
    from dougong_conformance.requirements import STAGES
    from dougong_conformance.results import Selection
    from dougong_conformance.runner.run import RunRequest

    if stage and stage not in STAGES:
        raise usage_error(f"no step is named {stage!r}; there are {', '.join(STAGES)}")
    request = RunRequest(
        plugin=choose_plugin(plugin),
        mode="smoke",
        folder=out or Path(tempfile.mkdtemp(prefix="dougong-smoke-")),
        selection=Selection(is_smoke=True, stage=stage),
    )
    raise execute(request, is_json=is_json)
