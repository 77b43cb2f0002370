"""What the wheel declares is what its code imports: no less, and nothing on top."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

CORE = Path(__file__).parents[2]
IMPORTED_BY_ANOTHER = {"httptools"}  # by the module of uvicorn's that the server names


def _imported(sources: Iterable[str]) -> set[str]:
    """Top-level packages that are neither the standard library's nor our own; lazy ones, too."""
    names: set[str] = set()
    for node in (node for source in sources for node in ast.walk(ast.parse(source))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module.split(".")[0])
    return names - sys.stdlib_module_names - {"dougong"}


def _declared(requirements: Iterable[str]) -> set[str]:
    """Import names; of every distribution we depend on it is its own name, with underscores."""
    names = (re.split(r"[^\w.-]", requirement, maxsplit=1)[0] for requirement in requirements)
    return {name.lower().replace("-", "_") for name in names}


def _difference(sources: Iterable[str], requirements: Iterable[str]) -> tuple[set[str], set[str]]:
    """Imported and not declared; declared and not imported."""
    imported, declared = _imported(sources), _declared(requirements)
    return imported - declared, declared - imported


def test_every_dependency_is_imported_and_every_import_is_declared() -> None:
    project = tomllib.loads((CORE / "pyproject.toml").read_text())["project"]
    sources = [path.read_text() for path in (CORE / "src").rglob("*.py")]
    undeclared, unused = _difference(sources, project["dependencies"])
    assert not undeclared, f"add to [project] dependencies: {sorted(undeclared)}"
    unused -= IMPORTED_BY_ANOTHER
    assert not unused, f"no module under src imports these dependencies: {sorted(unused)}"


def test_what_is_missing_and_what_is_too_much_is_found() -> None:
    sources = ["import os, acme.part", "def later():\n    from far_away import thing\n"]
    assert _difference(sources, ["Far-Away[fast]>=2,<3"]) == ({"acme"}, set())
    assert _difference(sources, ["acme", "far-away>=1", "idle; python_version<'4'"]) == (
        set(),
        {"idle"},
    )
