from __future__ import annotations

import os
from pathlib import Path

import pytest

from dougong import LLM, SamplingParams
from dougong.config import EngineArgs
from dougong.engine.core import EngineCore
from dougong.errors import EngineDeadError, PluginError
from dougong.testing.null_worker import NullWorker
from tests.support.installed_stubs import Installed
from tests.support.null_engine import NULL_OPTIONS, NullModels
from tests.support.stub_plugins import Stub

EXTENSION = {"distribution": "nullops", "name": "nullops", "has_platform": False}
COUNTS = """
@hookimpl
def dougong_process_start(role, rank):
    count(f"{role} {rank}")


@hookimpl
def dougong_engine_ready(status):
    count(f"ready {status['platform']}")
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    return Installed(tmp_path / "stubs", monkeypatch)


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a line for everything that the plugin was told."""
    monkeypatch.setenv("STUB_COUNTER", str(tmp_path / "heard"))
    return tmp_path / "heard"


def told(heard: Path) -> list[tuple[bool, str]]:
    """What the hooks were told, each with whether it was in this process."""
    lines = [line.partition(" ") for line in heard.read_text().splitlines()]
    own = str(os.getpid())
    parts = ("front", "engine", "ready")
    return [(pid == own, what) for pid, _, what in lines if what.startswith(parts)]


def failing(hook: str, argument: str) -> Stub:
    body = f"@hookimpl\ndef {hook}({argument}):\n    raise ValueError('no')\n"
    return Stub(hooks=body, **EXTENSION)  # type: ignore[arg-type]  # a dictionary for brevity


@pytest.mark.parametrize("in_own_process", [False, True], ids=["here", "own process"])
def test_each_process_of_an_engine_is_announced_once(
    null_models: NullModels, installed: Installed, heard: Path, in_own_process: bool
) -> None:
    installed.add(Stub(hooks=COUNTS, **EXTENSION))  # type: ignore[arg-type]  # as above
    with LLM(null_models.write(), in_own_process=in_own_process, **NULL_OPTIONS):
        is_here = not in_own_process
        assert told(heard) == [
            (True, "front None"), (is_here, "engine None"), (is_here, "ready null"),
        ]  # fmt: skip


def test_an_engine_without_a_front_end_is_announced_as_one(
    null_models: NullModels, installed: Installed, heard: Path
) -> None:
    installed.add(Stub(hooks=COUNTS, **EXTENSION))  # type: ignore[arg-type]  # as above
    EngineCore.start(EngineArgs(model=null_models.write(), **NULL_OPTIONS)).shutdown()
    assert told(heard) == [(True, "engine None"), (True, "ready null")]


@pytest.mark.parametrize(
    ("hook", "argument", "num_shutdowns"),
    [("dougong_process_start", "role", 0), ("dougong_engine_ready", "status", 1)],
)
def test_a_hook_that_fails_at_the_start_is_named_with_its_wheel_and_leaves_nothing(
    null_models: NullModels,
    installed: Installed,
    monkeypatch: pytest.MonkeyPatch,
    hook: str,
    argument: str,
    num_shutdowns: int,
) -> None:
    ended: list[NullWorker] = []
    monkeypatch.setattr(NullWorker, "shutdown", lambda self: ended.append(self))
    installed.add(failing(hook, argument))
    told = rf"nullops 0\.1: {hook} raised ValueError"
    with pytest.raises(PluginError, match=told) as caught:
        EngineCore.start(EngineArgs(model=null_models.write(), **NULL_OPTIONS))
    assert caught.value.plugin == "nullops"
    assert len(ended) == num_shutdowns


def test_a_hook_that_fails_after_a_step_ends_the_engine_with_its_name(
    null_models: NullModels, installed: Installed
) -> None:
    installed.add(failing("dougong_step_done", "stats"))
    with LLM(null_models.write(), **NULL_OPTIONS) as llm:
        with pytest.raises(EngineDeadError) as caught:
            llm.generate([5], SamplingParams(max_tokens=2, temperature=0.0))
        assert isinstance(caught.value.__cause__, PluginError)
        assert "nullops 0.1: dougong_step_done raised" in str(caught.value.__cause__)
