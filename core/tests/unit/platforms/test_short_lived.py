from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dougong.platforms.short_lived import ChildFailed, ask_child
from tests.support.processes import is_running


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "asked_child.py"


def _answers_with(expression: str) -> str:
    return (
        "import os, sys, time\nfrom dougong.platforms.short_lived import answer_parent\n"
        f"answer_parent(lambda question: {expression})\n"
    )


def test_a_question_is_answered_whatever_is_printed(child: Path) -> None:
    child.write_text("print('noise')\n" + _answers_with("question['x'] + [2]"))
    assert ask_child("asked_child", {"x": [1]}, 60.0) == [1, 2]


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("os._exit(7)", "code 7"),
        ("os.kill(os.getpid(), 9)", "code -9"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_child_that_ends_itself_is_told(child: Path, expression: str, told: str) -> None:
    child.write_text(_answers_with(expression))
    with pytest.raises(ChildFailed, match=told):
        ask_child("asked_child", None, 60.0)


def test_a_child_has_the_variables_it_is_given_beside_its_parents(
    child: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INHERITED", "1")
    child.write_text(_answers_with("[os.environ.get('INHERITED'), os.environ.get('GIVEN')]"))
    given = {"GIVEN": "2"}
    assert ask_child("asked_child", None, 60.0, environment=given) == ["1", "2"]
    assert ask_child("asked_child", None, 60.0) == ["1", None]


def test_a_child_that_hangs_is_ended(child: Path) -> None:
    child.write_text(_answers_with("time.sleep(600)"))
    with pytest.raises(ChildFailed, match="no answer within 1 s"):
        ask_child("asked_child", None, 1.0)


def test_a_child_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ChildFailed, match=r"could not be started.*nowhere"):
        ask_child("asked_child", None, 60.0)


def test_a_child_leaves_when_its_parent_is_killed(child: Path, tmp_path: Path) -> None:
    written = tmp_path / "pid"
    write = f"open({str(written)!r}, 'w').write(str(os.getpid())), time.sleep(600)"
    child.write_text(_answers_with(f"({write})"))
    ask = "from dougong.platforms.short_lived import ask_child\nask_child('asked_child', None, 600)"
    parent = subprocess.Popen([sys.executable, "-c", ask])
    try:
        wait_for(lambda: written.exists() and written.read_text() != "")
    finally:
        parent.kill()
        parent.wait()
    wait_for(lambda: not is_running(int(written.read_text())))


def wait_for(condition: Callable[[], bool]) -> None:
    """The test's own timeout ends it when it never holds."""
    while not condition():
        time.sleep(0.01)
