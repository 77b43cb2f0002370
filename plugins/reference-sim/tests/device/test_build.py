"""The build: only what changed, nothing when nothing did, and a clear word when it fails."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SETUP = Path(__file__).parents[2] / "setup.py"
# Stands for the compiler: tells its version, writes what it was asked for, and keeps a diary.
COMPILER = """#!/bin/sh
[ "$1" = --version ] && echo "fake compiler 1" && exit 0
for word in "$@"; do
  case "$word" in *.cpp) basename "$word" >> "$DIARY";; -shared) echo link >> "$DIARY";; esac
  [ "$last" = -o ] && echo built > "$word"
  last="$word"
done
"""


class Workshop:
    """A source folder of two files and a header, and the build over it."""

    def __init__(self, script: ModuleType, folder: Path) -> None:
        self.script, self.folder, self.diary = script, folder, folder / "diary"

    def write(self, name: str, text: str) -> None:
        (self.folder / "csrc" / name).write_text(text)

    def build(self) -> list[str]:
        """What was compiled and linked."""
        self.diary.write_text("")
        self.script.build()
        return sorted(self.diary.read_text().split())


@pytest.fixture
def workshop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Workshop:
    """Nothing has been built in it yet."""
    spec = importlib.util.spec_from_file_location("sim_setup", SETUP)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(importlib.import_module("setuptools"), "setup", lambda **arguments: None)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "SOURCES", tmp_path / "csrc")
    monkeypatch.setattr(script, "PACKAGE", tmp_path)
    monkeypatch.setattr(script, "OBJECTS", tmp_path / "build" / "objects")
    compiler = tmp_path / "c++"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    made = Workshop(script, tmp_path)
    monkeypatch.setenv("DIARY", str(made.diary))
    (tmp_path / "csrc").mkdir()
    for name in ("a.cpp", "b.cpp", "shared.h"):
        made.write(name, name)
    return made


def test_the_first_build_compiles_everything(workshop: Workshop) -> None:
    assert workshop.build() == ["a.cpp", "b.cpp", "link"]
    assert (workshop.folder / "libdougong_sim.so").exists()
    assert "TORCH_GIT = " in (workshop.folder / "_build.py").read_text()


def test_nothing_is_built_when_nothing_changed(workshop: Workshop) -> None:
    workshop.build()
    assert workshop.build() == []


def test_a_changed_source_is_compiled_alone(workshop: Workshop) -> None:
    workshop.build()
    workshop.write("b.cpp", "changed")
    assert workshop.build() == ["b.cpp", "link"]


def test_a_changed_header_compiles_everything(workshop: Workshop) -> None:
    workshop.build()
    workshop.write("shared.h", "changed")
    assert workshop.build() == ["a.cpp", "b.cpp", "link"]


def test_another_compiler_or_torch_compiles_everything(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.build()
    monkeypatch.setattr(workshop.script.Toolchain, "identity", lambda self: "another")
    assert workshop.build() == ["a.cpp", "b.cpp", "link"]


def test_without_a_compiler_the_build_says_so(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(SystemExit, match=r"needs a C\+\+20 compiler, and 'no-such-compiler'"):
        workshop.build()


def test_without_torch_the_build_says_so(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="install torch first"):
        workshop.build()
