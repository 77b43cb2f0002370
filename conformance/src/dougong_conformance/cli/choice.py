"""Which plugin a command is about: as named, or the only one there is."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from typing import Any

from dougong_conformance.cli.usage import usage_error
from dougong_conformance.runner.wheels import (
    GROUP,
    OWN_PLATFORM,
    InstalledPlugin,
    installed_plugins,
)

_TABLE_S = 30.0
_LOOKS_LIKE = "dougong"
_OURS = ("dougong", "dougong-conformance")


def choose_plugin(name: str | None, import_path: str = "") -> InstalledPlugin:
    """The plugin that is meant.

    Raises:
        typer.Exit: There is none of that name, or no or several to choose from; it was said.
    """
    found = installed_plugins(import_path)
    if name is None:
        return _only(found)
    named = [one for one in found if one.name == name]
    if len(named) == 1:
        return named[0]
    if named:
        wheels = " and by ".join(one.wheel for one in named)
        raise usage_error(f"the name {name!r} is claimed by {wheels}; uninstall one")
    raise usage_error(f"no installed plugin is named {name!r}.{_told(found)}")


def _only(found: list[InstalledPlugin]) -> InstalledPlugin:
    """The only platform that is not the core's own."""
    others = [one for one in found if one.name != OWN_PLATFORM]
    if len(others) > 1:
        extensions = {row["name"] for row in plugin_table() if row["is_extension"]}
        others = [one for one in others if one.name not in extensions]
    if len(others) == 1:
        return others[0]
    if others:
        names = ", ".join(f"{one.name} ({one.wheel})" for one in others)
        raise usage_error(f"several plugins are installed: {names}. Choose one with --plugin NAME.")
    raise usage_error(f"no plugin is installed beside the core's own.{_told(found)}")


def _told(found: list[InstalledPlugin]) -> str:
    """What there is, what became of it, and what merely looks like a plugin."""
    rows = plugin_table()
    lines = [
        f"{row['name']} ({row['distribution']} {row['version']}): {row['verdict']}"
        + (f": {row['reason']}" if row["reason"] else "")
        for row in rows
    ] or [f"{one.name} ({one.wheel})" for one in found]
    lines += [f"{wheel}: it has no entry point of the group {GROUP}" for wheel in _look_alikes()]
    return f" Installed: {'; '.join(lines) or 'none'}."


def _look_alikes() -> list[str]:
    """Distributions named like a plugin that name no entry point of the group."""
    return sorted(
        {
            f"{one.name} {one.version}"
            for one in metadata.distributions()
            if one.name
            and one.name.lower().replace("_", "-").startswith(f"{_LOOKS_LIKE}-")
            and one.name not in _OURS
            and not any(point.group == GROUP for point in one.entry_points)
        }
    )


def plugin_table() -> list[dict[str, Any]]:
    """What ``dougong doctor`` finds of every plugin, asked in a child; empty: it does not say."""
    command = [sys.executable, "-m", "dougong.cli.main", "doctor", "--json", "--no-test"]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=_TABLE_S, check=False
        )
        rows: list[dict[str, Any]] = json.loads(ended.stdout)["plugins"]
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError):
        return []
    return rows
