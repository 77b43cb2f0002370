"""What an import pulls in, asked of fresh interpreters."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "dougong"
HOST_SIDE = ("contracts", "config", "grammar", "kv_cache", "messages", "scheduler")
REPORT = "\nimport json, sys; print('\\n' + json.dumps(sorted(sys.modules)))"
COMMAND_LINE = """
import sys
from dougong.cli.main import main
sys.argv = {arguments!r}
try:
    main()
except SystemExit as stopped:
    assert not stopped.code, stopped.code
"""


def _modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code + REPORT],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded: list[str] = json.loads(done.stdout.splitlines()[-1])
    return set(loaded)


def _submodules(room: str) -> list[str]:
    files = sorted((PACKAGE / room).rglob("*.py"))
    assert files, f"dougong.{room} is empty"
    parts = [file.relative_to(PACKAGE.parent).with_suffix("").parts for file in files]
    return [".".join(part for part in path if part != "__init__") for path in parts]


def _tops(modules: set[str]) -> set[str]:
    return {name.split(".")[0] for name in modules}


@pytest.mark.parametrize("room", HOST_SIDE)
def test_every_module_of_the_host_side_imports_without_torch(room: str) -> None:
    code = "\n".join(f"import {module}" for module in _submodules(room))
    assert "torch" not in _tops(_modules_after(code))


def test_the_check_for_torch_can_fail() -> None:
    assert "torch" in _tops(_modules_after("import torch"))


def test_importing_dougong_opens_nothing() -> None:
    loaded = _modules_after("import dougong")
    ours = {name for name in loaded if name.split(".")[0] == "dougong"}
    assert ours == {"dougong"}
    foreign = _tops(loaded) - _tops(_modules_after("import __future__, importlib, typing"))
    assert foreign == {"dougong"}


@pytest.mark.parametrize("command", [[], ["generate"], ["serve"], ["bench"], ["doctor"]], ids=str)
def test_help_loads_neither_torch_nor_the_engine(command: list[str]) -> None:
    loaded = _modules_after(COMMAND_LINE.format(arguments=["dougong", *command, "--help"]))
    assert "torch" not in _tops(loaded)
    assert not {name for name in loaded if name.startswith("dougong.engine")}
