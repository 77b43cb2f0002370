"""``dougong-conform run``: for whoever writes a plugin."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from dougong_conformance.cli.usage import usage_error

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run", epilog="Exit codes: see dougong-conform --help.")(run)


def run(
    plugin: Annotated[
        str | None, typer.Option(metavar="NAME", help="Plugin; not needed where only one is.")
    ] = None,
    profile: Annotated[
        list[str] | None, typer.Option(metavar="P", help="Only this profile; may be repeated.")
    ] = None,
    expression: Annotated[
        str, typer.Option("-k", metavar="EXPR", help="Only cases whose id fits, as in pytest.")
    ] = "",
    search: Annotated[
        str, typer.Option(metavar="TIME", help="Then try further seeds for so long: 15m, 90s.")
    ] = "",
    waivers: Annotated[Path | None, typer.Option(metavar="FILE", help="Waivers.")] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the report.")] = Path("out"),
    is_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """Run all checks, or some, and write the report.

    What comes out says how far a plugin is; only certify says that it conforms.
    """
    from dougong_conformance.cli.choice import choose_plugin
    from dougong_conformance.cli.running import execute
    from dougong_conformance.requirements import PROFILES
    from dougong_conformance.results import Selection
    from dougong_conformance.runner.run import RunRequest

    chosen = tuple(profile or ())
    if unknown := [one for one in chosen if one not in PROFILES]:
        raise usage_error(f"no profile is named {unknown[0]!r}; there are {', '.join(PROFILES)}")
    search_s = parse_seconds(search)
    request = RunRequest(
        plugin=choose_plugin(plugin),
        mode="run",
        folder=out,
        selection=Selection(profiles=chosen, expression=expression),
        waivers=waivers,
        search_s=search_s,
    )
    raise execute(request, is_json=is_json)


def parse_seconds(text: str) -> float:
    """``"15m"`` as seconds; nothing is 0.

    Raises:
        typer.Exit: It is no time; it was said.
    """
    if not text:
        return 0.0
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if found is None:
        raise usage_error(f"--search {text!r} is no time; write 90s, 15m or 1h")
    return float(found[1]) * _UNITS[found[2]]
