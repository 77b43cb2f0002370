"""Scenario A20 as an operator meets it: an incomplete checkpoint is refused, and nothing served."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.support.command_line import run_command
from tests.support.tiny_models import write_tiny_checkpoint

Capture = pytest.CaptureFixture[str]
INDEX = "model.safetensors.index.json"
SECOND = "model-00002-of-00002.safetensors"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_tiny_checkpoint(tmp_path / "tiny", num_shards=2)


def generate(folder: Path) -> int:
    options = ("--max-tokens", "2", "--platform", "cpu", "--num-kv-blocks", "8")
    return run_command("generate", "the", "--model", str(folder), *options)


def refused(folder: Path, capsys: Capture) -> str:
    """The error of a start that serves nothing."""
    assert generate(folder) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    return shown.err


def second_names(folder: Path) -> list[str]:
    weight_map = json.loads((folder / INDEX).read_text())["weight_map"]
    return [name for name, shard in weight_map.items() if shard == SECOND]


def test_a_missing_shard_is_refused_with_its_tensors(checkpoint: Path, capsys: Capture) -> None:
    (checkpoint / SECOND).unlink()
    error = refused(checkpoint, capsys)
    assert f"{SECOND}, named by {INDEX}, is missing" in error
    assert any(name in error for name in second_names(checkpoint))


def test_a_shard_cut_by_one_kib_is_refused_with_its_tensors(
    checkpoint: Path, capsys: Capture
) -> None:
    path = checkpoint / SECOND
    os.truncate(path, path.stat().st_size - 1024)
    error = refused(checkpoint, capsys)
    assert f"{SECOND} is cut short" in error
    assert any(name in error for name in second_names(checkpoint))


def test_an_index_that_names_a_lacking_tensor_is_refused(checkpoint: Path, capsys: Capture) -> None:
    content = json.loads((checkpoint / INDEX).read_text())
    content["weight_map"]["lost.weight"] = SECOND
    (checkpoint / INDEX).write_text(json.dumps(content))
    assert f"{SECOND} lacks lost.weight" in refused(checkpoint, capsys)


def test_an_empty_folder_is_refused(tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    assert str(folder) in refused(folder, capsys)


def test_an_extra_shard_is_ignored_with_a_note(checkpoint: Path, capsys: Capture) -> None:
    shutil.copy(checkpoint / SECOND, checkpoint / "old-model.safetensors")
    assert generate(checkpoint) == 0
    shown = capsys.readouterr()
    assert shown.out != ""
    assert "old-model.safetensors" in shown.err
