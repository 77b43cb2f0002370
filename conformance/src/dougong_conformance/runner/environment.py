"""What the processes of a run see of the environment: nothing, but for a list that is recorded."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

KEPT = (
    *("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ", "USER"),
    *("LD_LIBRARY_PATH", "OMP_NUM_THREADS", "XDG_CACHE_HOME", "DOUGONG_CACHE"),
)
"""Names that reach an executor."""

JUDGE_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "OMP_NUM_THREADS")

PREFIX_GROUP = "dougong.conformance_environment"
"""Entry points of this group name prefixes of variables that a vendor's runtime reads: in the
wheel's metadata ``ACME_ = dougong_acme``. Its values reach the executor and are recorded."""

_NEVER = re.compile(r"(PYTHON|PYTEST|TORCH|LD_PRELOAD|LD_AUDIT|DOUGONG_(?!CACHE))")


def executor_environment(
    plugin: str, prefixes: Iterable[str], given: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Environment of a process with the plugin.

    Args:
        plugin: Name of the plugin under test; the only one that the core will look at.
        prefixes: Declared by its wheel; the plugin's own name in capitals is one of them.
        given: Instead of this process's environment.
    """
    found = os.environ if given is None else given
    allowed = (*(one for one in prefixes if one), own_prefix(plugin))
    kept = {
        name: value
        for name, value in found.items()
        if name.startswith(allowed) and not _NEVER.match(name)
    }
    common = common_environment(found)
    return dict(sorted({**kept, **common, "DOUGONG_PLUGINS": plugin}.items()))


def common_environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """What every process with torch sees, whatever the plugin."""
    found = os.environ if given is None else given
    kept = {name: value for name, value in found.items() if name in KEPT}
    return {**kept, "PYTHONUNBUFFERED": "1"}


def judge_environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment of the judge: no library loads anything of a vendor because of it."""
    found = os.environ if given is None else given
    kept = {name: found[name] for name in JUDGE_KEPT if name in found}
    return {**kept, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def own_prefix(plugin: str) -> str:
    """``"ACME_"`` for the plugin ``acme``."""
    return re.sub(r"[^A-Z0-9]+", "_", plugin.upper()) + "_"


def declared_prefixes(distribution: metadata.Distribution | None) -> tuple[str, ...]:
    """Prefixes that a wheel's metadata declares; too short ones and Python's own are left out."""
    points: Iterable[metadata.EntryPoint] = distribution.entry_points if distribution else ()
    names = sorted(point.name for point in points if point.group == PREFIX_GROUP)
    return tuple(name for name in names if len(name) > 2 and not _NEVER.match(name))


def clean_command(module: str, arguments: Sequence[str]) -> list[str]:
    """Run a module in an interpreter that no wheel can change: ``-I -S`` and a path made here.

    Without ``site`` neither ``.pth`` files nor ``sitecustomize`` run. The path holds the folders
    of the suite, of torch and of numpy, and nothing that was put in front of them.
    """
    code = (
        f"import sys; sys.path += {clean_path()!r}; sys.argv[1:] = {list(arguments)!r}; "
        f"from {module} import main; main()"
    )
    return [sys.executable, "-I", "-S", "-X", "faulthandler", "-c", code]


def clean_path() -> list[str]:
    """Folders that hold the suite, torch, numpy and what they need."""
    found: list[str] = []
    for name in ("dougong_conformance", "torch", "numpy"):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            folder = str(Path(spec.origin).parents[1])
            if folder not in found:
                found.append(folder)
    return found


def module_command(module: str, arguments: Sequence[str]) -> list[str]:
    """Run a module as an engine would run: with ``site``, without the current folder."""
    return [sys.executable, "-P", "-X", "faulthandler", "-m", module, *arguments]
