"""``dougong-conform certify``: everything, under rules that nobody can bend."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("certify", epilog="Exit codes: see dougong-conform --help.")(certify)


def certify(
    plugin: Annotated[
        str | None, typer.Option(metavar="NAME", help="Plugin; not needed where only one is.")
    ] = None,
    waivers: Annotated[Path | None, typer.Option(metavar="FILE", help="Waivers.")] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the report.")] = Path("out"),
) -> None:
    """Run every check of an installed wheel and write report and certificate.

    There are no other options. Core cases of ops and attention run three times and must agree.
    """
    from dougong_conformance.cli.choice import choose_plugin
    from dougong_conformance.cli.running import execute
    from dougong_conformance.runner.run import RunRequest

    request = RunRequest(plugin=choose_plugin(plugin), mode="certify", folder=out, waivers=waivers)
    raise execute(request, is_json=False)
