"""Processes that are ended, and what is said of how they ended."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from dougong_conformance.runner.processes import (
    Child,
    descendants,
    how_it_ended,
    last_lines,
    start_child,
)


def start(code: str, folder: Path) -> Child:
    return start_child([sys.executable, "-I", "-S", "-c", code], {}, folder / "log")


@pytest.mark.parametrize(
    ("code", "text"),
    [(None, "does not end"), (0, "exited with code 0"), (-11, "was killed by SIGSEGV")],
)
def test_an_end_is_told_in_words(code: int | None, text: str) -> None:
    assert how_it_ended(code) == text


def test_a_child_that_ignores_sigterm_is_killed_with_its_own_children(tmp_path: Path) -> None:
    child = start(
        "import os, signal, time; signal.signal(15, signal.SIG_IGN); os.fork(); "
        "print('ready', flush=True); time.sleep(60)",
        tmp_path,
    )
    while (tmp_path / "log").read_bytes().count(b"ready") < 2:
        time.sleep(0.01)
    below = descendants(child.pid)
    assert len(below) == 1
    child.end(0.05)
    assert child.code() == -9
    assert child.wait(0) == -9
    for _ in range(200):
        if not _runs(below[0]):
            break
        time.sleep(0.01)
    assert not _runs(below[0])


def _runs(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_last_lines_are_short_and_printable(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\n".join(b"line %d \x1b[31m" % number for number in range(100)))
    assert last_lines(log).startswith("line 94 ?[31m | line 95")
    assert last_lines(tmp_path / "none") == ""


def test_of_stacks_the_innermost_calls_are_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    calls = "\n".join(f'  File "f.py", line {number} in f{number}' for number in range(40))
    log.write_text(f"loading\nFatal Python error: Segmentation fault\n\nCurrent thread:\n{calls}\n")
    told = last_lines(log)
    assert told.startswith("loading | Fatal Python error")
    assert "f0" in told
    assert "f39" not in told


def test_a_log_that_grows_without_end_is_cut(tmp_path: Path) -> None:
    child = start("print('x' * 5000)", tmp_path)
    child.wait(30)
    child.cut_log(10_000)
    assert child.log.stat().st_size > 5000
    child.cut_log(1000)
    assert child.log.read_text().startswith("(the log grew")
    assert child.code() == 0
    assert os.path.exists(child.log)
