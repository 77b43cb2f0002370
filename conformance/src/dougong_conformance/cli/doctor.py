"""``dougong-conform doctor``: what a run would meet, without running it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dougong_conformance.cli.usage import ended


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "doctor", epilog="Exit codes: 0 a run can begin; 2 usage; 5 the plugin does not load."
    )(doctor)


def doctor(
    plugin: Annotated[
        str | None, typer.Option(metavar="NAME", help="Plugin; not needed where only one is.")
    ] = None,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Load a plugin as a run does; say what it claims, and which checks would run or not, and why.

    Nothing is judged here.
    """
    from dougong_conformance.cli.choice import choose_plugin
    from dougong_conformance.cli.watching import make_console
    from dougong_conformance.runner.forecast import forecast
    from dougong_conformance.runner.run import RunRequest, look, requirements_of

    chosen = choose_plugin(plugin)
    with tempfile.TemporaryDirectory(prefix="dougong-doctor-") as folder:
        request = RunRequest(plugin=chosen, mode="run", folder=Path(folder))
        header, told = look(request)
    problem = str(told.no_plugin.get("reason", "")) or "; ".join(told.problems)
    found = {
        "plugin": header.to_json()["plugin"],
        "loads": not problem,
        "problem": problem,
        "traceback": str(told.no_plugin.get("traceback", "")),
        "claims": dict(header.claims),
        "devices": [dict(one) for one in header.devices],
        "versions": dict(header.versions),
        "torch": header.torch,
        "contract": header.contract_version,
        "patches": list(header.patches),
        "registrations": list(header.registrations),
        "certify_would_refuse": list(header.tampering),
        "environment": dict(header.environment),
        "checks": forecast(requirements_of(""), header, told),
    }
    if is_json:
        print(json.dumps(found, indent=1, default=str))
    else:
        print_findings(make_console(), found)
    if problem:
        raise ended(5, f"the plugin does not load: {problem}")


def print_findings(console: Console, found: Mapping[str, Any]) -> None:
    """As tables."""
    plugin = found["plugin"]
    console.print(
        f"[bold]{plugin['name']}[/] ({plugin['distribution']} {plugin['version']}): "
        + ("[green]loads[/]" if found["loads"] else "[bold red]does not load[/]")
    )
    if found["problem"]:
        console.print(escape(found["traceback"] or found["problem"]), style="red")
    if found["devices"]:
        console.print(_devices(found["devices"]))
        console.print(_claims(found["claims"]))
    versions = {"torch": found["torch"], "contract": found["contract"], **found["versions"]}
    console.print(escape(", ".join(f"{name} {text}" for name, text in versions.items() if text)))
    console.print(_checks(found["checks"]))
    for title, lines, style in (
        ("certify would refuse", found["certify_would_refuse"], "yellow"),
        ("patched", found["patches"], "yellow"),
        ("added by device registration", found["registrations"], "dim"),
    ):
        for line in lines:
            console.print(escape(f"{title}: {line}"), style=style)


def _devices(devices: list[dict[str, Any]]) -> Table:
    table = Table(title="Devices", title_justify="left")
    for column in ("index", "name", "uuid", "arch", "memory", "driver"):
        table.add_column(column, overflow="fold")
    for one in devices:
        memory = one.get("memory_bytes")
        texts = [str(one.get(name, "")) for name in ("index", "name", "uuid", "arch")]
        size = f"{memory / 2**30:.1f} GiB" if memory else "unknown"
        table.add_row(*map(escape, texts), size, escape(str(one.get("driver_version", ""))))
    return table


def _claims(claims: Mapping[str, Any]) -> Table:
    table = Table(title="Claims", title_justify="left")
    for column in ("claim", "value"):
        table.add_column(column, overflow="fold")
    for name, value in claims.items():
        if value not in (None, False, [], {}, ()):
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            table.add_row(escape(name), escape(text))
    return table


def _checks(checks: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(title="Checks of a run", title_justify="left")
    for column in ("profile", "cases", "would not run"):
        table.add_column(column, overflow="fold")
    for profile, one in checks.items():
        reasons = "\n".join(f"{count}: {why}" for why, count in one["not"].items())
        table.add_row(profile, str(one["cases"]), escape(reasons))
    return table
