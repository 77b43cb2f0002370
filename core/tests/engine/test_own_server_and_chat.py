"""``dougong bench serve MODEL`` and ``dougong chat MODEL``, each with an engine of its own."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import run_command
from tests.support.null_engine import NullModels, install_null_platform

NULL = ("--platform", "null", "--block-size", "4", "--num-kv-blocks", "1000")


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NullModels:
    install_null_platform(tmp_path / "site", monkeypatch)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    return NullModels(tmp_path / "models")


def test_a_server_is_started_measured_and_ended(
    models: NullModels, capsys: pytest.CaptureFixture[str]
) -> None:
    load = ("--num-prompts", "6", "--concurrency", "3", "--input-len", "8", "--output-len", "5")
    command = ("bench", "serve", models.write(), *NULL, *load, "--vocab-size", "200", "--json")
    assert run_command(*command, "--route", "completions") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["errors"] == {}
    assert record["results"]["num_whole_answers"] == 6
    assert record["versions"]["server"] == record["versions"]["dougong"]
    assert record["decisions"]["platform"] == "null"


def test_a_conversation_with_a_model_in_a_process_of_its_own(
    models: NullModels, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\n/reset\nhi\n"))
    command = ("chat", models.write(), *NULL, "--max-tokens", "6", "--temperature", "0")
    assert run_command(*command) == 0
    shown = capsys.readouterr()
    first, second = shown.out.splitlines()
    assert first == second != ""
    assert "on null. /help tells the commands." in shown.err
    assert shown.err.count("tokens, first after") == 2


def test_an_interrupt_ends_the_answer_and_not_the_conversation(models: NullModels) -> None:
    model = models.write(step_seconds=0.02)
    options = ("chat", model, *NULL, "--max-tokens", "150", "--temperature", "0")
    with subprocess.Popen(
        [sys.executable, "-m", "dougong.cli.main", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"hi\n")
        process.stdin.flush()
        begun = os.read(process.stdout.fileno(), 100)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the engine's process, too
        notes = [process.stderr.readline().decode() for _ in range(2)]
        process.stdin.write(b"/undo\nhi\n")
        process.stdin.close()
        rest, told = process.stdout.read(), process.stderr.read().decode()
        assert process.wait(30) == 0
    assert notes[1].endswith("interrupted)\n"), notes
    first, second = (begun + rest).decode().splitlines()
    assert second.startswith(first)
    assert len(second) > len(first)
    assert "(0 turns are left)" in told
