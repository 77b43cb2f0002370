"""Signs that the environment, the wheel under test or the suite is not what it should be."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from dougong_conformance.results import PluginIdentity
from dougong_conformance.runner.wheels import (
    InstalledPlugin,
    changed_files,
    find_distribution,
    pytest_plugins,
    start_up_files,
)

_SUITE = "dougong-conformance"
_CORE = "dougong"
_TORCH = "torch"
_SHOWN = 5


def signs(
    plugin: InstalledPlugin,
    identity: PluginIdentity,
    environment: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """One sentence for each sign; only certify is refused because of them."""
    return tuple(_signs(plugin, identity, os.environ if environment is None else environment))


def _signs(
    plugin: InstalledPlugin, identity: PluginIdentity, environment: Mapping[str, str]
) -> Iterator[str]:
    if sys.flags.optimize or environment.get("PYTHONOPTIMIZE"):
        yield "Python is told to leave assertions out (PYTHONOPTIMIZE or -O)"
    if identity.is_editable:
        yield (
            f"{identity.distribution} is installed editable: its files may change at any time; "
            "build a wheel and install that"
        )
    elif not identity.record_sha256 and plugin.name != "cpu":
        yield f"{identity.distribution} has no RECORD: no installer put it here"
    if identity.tampered:
        yield f"files of {identity.distribution} are not those of its wheel: {_list(identity)}"
    for one in pytest_plugins([plugin.distribution]):
        yield f"the wheel brings a plugin for pytest: {one}"
    for name in start_up_files(plugin.distribution):
        yield f"the wheel brings {name}, which runs at the start of every Python process"
    for name, suffix in ((_SUITE, ""), (_CORE, ""), (_TORCH, ".py")):
        yield from _foreign_edits(name, suffix, identity)


def _foreign_edits(name: str, suffix: str, identity: PluginIdentity) -> Iterator[str]:
    """Edits of the suite, the core and torch; the core's own platform is judged by its own."""
    distribution = find_distribution(name)
    if distribution is None or name == identity.distribution:
        return
    changed = list(changed_files(distribution, suffix=suffix))
    if changed:
        names = ", ".join(changed[:_SHOWN])
        yield f"{len(changed)} files of {name} are not those of its wheel: {names}"


def _list(identity: PluginIdentity) -> str:
    more = len(identity.tampered) - _SHOWN
    return ", ".join(identity.tampered[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def suite_digest() -> str:
    """SHA-256 over every Python and TOML file of the suite, with their names."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.suffix in (".py", ".toml") and "__pycache__" not in path.parts:
            digest.update(path.relative_to(package).as_posix().encode() + b"\0")
            digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()
