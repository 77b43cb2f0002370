"""Stubs of libraries that are nowhere: what needs them loads, and what is called says no device."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from tools.elf import Symbol, read_library
from tools.stub_libraries import NO_DEVICE, missing_symbols, write_stubs

_GONE = """
int gone_count(void) { return 1; }
const char *gone_ErrorString(void) { return "of the real one"; }
int gone_plain(void) { return 3; }
"""
_NEEDS = """
int gone_count(void);
const char *gone_ErrorString(void);
int gone_plain(void);
int count(void) { return gone_count() + gone_plain(); }
const char *text(void) { return gone_ErrorString(); }
"""


def _compile(folder: Path, name: str, source: str, *options: str) -> Path:
    code, made = folder / f"{name}.c", folder / name
    code.write_text(source, "utf-8")
    command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", str(made), str(code)]
    subprocess.run([*command, *options], check=True)
    return made


@pytest.fixture
def needs(tmp_path: Path) -> Path:
    """A library whose other one is gone: two symbols of a version, one of none."""
    versions = tmp_path / "versions.map"
    versions.write_text("GONE_1 { global: gone_count; gone_ErrorString; };", "utf-8")
    script = f"-Wl,--version-script={versions}"
    gone = _compile(tmp_path, "libdougong_gone.so.1", _GONE, script)
    made = _compile(tmp_path, "libneeds.so", _NEEDS, str(gone), "-Wl,-rpath,$ORIGIN")
    gone.unlink()
    return made


def test_what_a_library_needs_is_read_from_it(needs: Path) -> None:
    library = read_library(needs)
    assert "libdougong_gone.so.1" in library.needed
    assert {"count", "text"} <= library.defined
    assert missing_symbols([library]) == {
        "libdougong_gone.so.1": (
            Symbol("gone_ErrorString", "GONE_1", "libdougong_gone.so.1"),
            Symbol("gone_count", "GONE_1", "libdougong_gone.so.1"),
            Symbol("gone_plain"),
        )
    }


def test_a_library_loads_over_stubs_and_finds_no_device(needs: Path) -> None:
    with pytest.raises(OSError, match="libdougong_gone"):
        ctypes.CDLL(str(needs))
    assert write_stubs([needs], needs.parent) == {"libdougong_gone.so.1": 3}
    loaded = ctypes.CDLL(str(needs))
    loaded.text.restype = ctypes.c_char_p
    assert loaded.count() == 2 * NO_DEVICE
    assert loaded.text() == b"there is no such device here"


def test_what_is_there_gets_no_stub(needs: Path) -> None:
    present = frozenset({"libdougong_gone.so.1"})
    assert missing_symbols([read_library(needs)], present) == {}
