"""Scenario A05 with one worker: an override is on once its wheel is installed, wherever steps run,
and whoever asks is told of it and of its wheel."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dougong import LLM
from tests.support.command_line import run_command
from tests.support.counted_ops import (
    CPU,
    KERNEL,
    NORM,
    OVERRIDE,
    ROTARY,
    WHEEL,
    implementations_that_ran,
    install_counted_ops,
)
from tests.support.greedy import greedy_tokens
from tests.support.tiny_models import write_tiny_checkpoint

NUM_NORMS = 5  # two in each of two layers, and the last one


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def expected(model: str) -> tuple[int, ...]:
    """The answer without the wheel."""
    with LLM(model, num_kv_blocks=20) as llm:
        assert llm.report.implementations[NORM] == {CPU[NORM]: NUM_NORMS}
        return greedy_tokens(llm)


@pytest.fixture
def counter(expected: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return install_counted_ops(tmp_path, monkeypatch)


@pytest.mark.parametrize("in_own_process", [False, True], ids=["here", "own process"])
def test_the_override_runs_in_the_worker_and_nothing_built_in_does(
    counter: Path, model: str, expected: tuple[int, ...], in_own_process: bool
) -> None:
    with LLM(model, in_own_process=in_own_process, num_kv_blocks=20) as llm:
        assert greedy_tokens(llm) == expected
        status = json.loads(json.dumps(llm.report.to_json()))
    ran = implementations_that_ran(counter)
    assert ran.keys() == {(NORM, OVERRIDE), (ROTARY, KERNEL)}
    (worker,) = ran[NORM, OVERRIDE]
    assert (worker == os.getpid()) is not in_own_process
    assert status["plan"]["origins"][OVERRIDE] == WHEEL
    (norms,) = (one for one in status["plan"]["ops"] if one["key"] == NORM)
    assert [piece["implementation"] for piece in norms["assignment"]["pieces"]] == [OVERRIDE]
    assert len(norms["assignment"]["paths"]) == NUM_NORMS
    assert {one["name"]: one["reason"] for one in norms["passed_over"]} == {
        CPU[NORM]: f"{OVERRIDE} comes first"
    }


def test_the_start_and_explain_name_the_override_with_its_wheel(
    counter: Path, model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with LLM(model, num_kv_blocks=20) as llm:
        assert any(f"{NORM}, {ROTARY} run stubops" in line for line in llm.report.lines())
    monkeypatch.setenv("COLUMNS", "200")
    assert run_command("explain", model) == 0
    shown = capsys.readouterr().out
    # What the slot does instead of is told below, as done inside it.
    line, *_ = (line for line in shown.splitlines() if f" {NORM} " in line)
    assert OVERRIDE in line
    assert WHEEL in line


@pytest.mark.parametrize(
    ("switch", "ran"),
    [
        ({"custom_ops": f"-{NORM}"}, "native"),
        ({"op": [f"{NORM}={CPU[NORM]}"]}, CPU[NORM]),
    ],
    ids=["native", "kernel"],
)
def test_what_is_built_in_would_be_counted_if_it_ran(
    counter: Path,
    model: str,
    expected: tuple[int, ...],
    switch: dict[str, str],
    ran: str,
) -> None:
    """Else the counts of zero above would show nothing."""
    with LLM(model, num_kv_blocks=20, **switch) as llm:  # type: ignore[arg-type]  # one of two
        assert greedy_tokens(llm) == expected
    assert implementations_that_ran(counter).keys() == {(NORM, ran), (ROTARY, KERNEL)}


def test_the_command_line_runs_it_and_its_status_names_the_wheel(
    counter: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("generate", "the", "--model", model, "--max-tokens", "3", "--json")
    assert run_command(*command) == 0
    start = json.loads(capsys.readouterr().out)["start"]
    assert start["plan"]["origins"][OVERRIDE] == WHEEL
    assert implementations_that_ran(counter).keys() == {(NORM, OVERRIDE), (ROTARY, KERNEL)}
