"""Scenario A20 through ``dougong serve``: an incomplete model is refused before anybody can ask."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.support.command_line import run_command
from tests.support.server_process import running_server
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.tiny_models import write_tiny_checkpoint

Capture = pytest.CaptureFixture[str]
OPTIONS = ("--platform", "cpu", "--num-kv-blocks", "8")
INDEX = "model.safetensors.index.json"
SECOND = "model-00002-of-00002.safetensors"
SINGLE = "model.safetensors"


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1024)


def without_second(folder: Path) -> Path:
    write_tiny_checkpoint(folder, num_shards=2)
    (folder / SECOND).unlink()
    return folder


def with_second_cut(folder: Path) -> Path:
    write_tiny_checkpoint(folder, num_shards=2)
    cut(folder / SECOND)
    return folder


def with_a_lost_tensor(folder: Path) -> Path:
    write_tiny_checkpoint(folder, num_shards=2)
    content = json.loads((folder / INDEX).read_text())
    content["weight_map"]["lost.weight"] = SECOND
    (folder / INDEX).write_text(json.dumps(content))
    return folder


def single_cut(folder: Path) -> Path:
    write_tiny_checkpoint(folder)
    cut(folder / SINGLE)
    return folder


def without_weights(folder: Path) -> Path:
    write_tiny_checkpoint(folder)
    (folder / SINGLE).unlink()
    return folder


def empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


def quantized_cut(folder: Path) -> Path:
    folder.mkdir()
    path = write_tiny_gguf(folder / "tiny.gguf")
    cut(path)
    return path


def quantized_cut_in_its_header(folder: Path) -> Path:
    folder.mkdir()
    path = write_tiny_gguf(folder / "tiny.gguf")
    os.truncate(path, 64)
    return path


def quantized_of_nothing(folder: Path) -> Path:
    folder.mkdir()
    path = folder / "tiny.gguf"
    path.touch()
    return path


CASES: dict[Callable[[Path], Path], tuple[str, ...]] = {
    without_second: (SECOND, INDEX, "is missing", "model.layers."),
    with_second_cut: (SECOND, "is cut short", "model.layers."),
    with_a_lost_tensor: (SECOND, "lacks lost.weight"),
    single_cut: (SINGLE, "is cut short"),
    without_weights: ("holds no weights",),
    empty: ("empty",),
    quantized_cut: ("tiny.gguf", "is cut short"),
    quantized_cut_in_its_header: ("tiny.gguf",),
    quantized_of_nothing: ("tiny.gguf",),
}


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_it_is_refused_with_its_file_and_nothing_listens(
    tmp_path: Path, capsys: Capture, make: Callable[[Path], Path]
) -> None:
    model = make(tmp_path / make.__name__)
    assert run_command("serve", str(model), "--port", "0", *OPTIONS) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "serving" not in shown.err
    assert "Traceback" not in shown.err
    for word in CASES[make]:
        assert word in shown.err


def test_an_extra_shard_is_ignored_with_a_note_and_the_model_served(tmp_path: Path) -> None:
    folder = write_tiny_checkpoint(tmp_path / "tiny", num_shards=2)
    shutil.copy(folder / SECOND, folder / "old-model.safetensors")
    with running_server(str(folder), *OPTIONS) as server:
        assert "old-model.safetensors" in server.log
        body = {"prompt": "the", "max_tokens": 2, "temperature": 0, "ignore_eos": True}
        answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=30)
        assert answer.json()["usage"]["completion_tokens"] == 2
