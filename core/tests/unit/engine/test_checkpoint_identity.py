"""What tells one checkpoint from another without reading its weights."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dougong.checkpoint import find_weight_summary, read_config, resolve_reference
from dougong.engine.checkpoint_identity import checkpoint_identity
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint


def identity(reference: str, *, revision: str | None = None) -> dict[str, str]:
    files = replace(resolve_reference(reference, needs_weights=False), revision=revision)
    return checkpoint_identity(files, read_config(files), find_weight_summary(files))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_checkpoint(tmp_path / "model")


def test_a_folder_is_itself_however_it_is_written(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = identity(str(model))
    assert set(whole) == {"source", "config", "tensors"}
    monkeypatch.chdir(model.parent)
    assert identity("model") == identity("./model") == identity(f"../{model.parent.name}/model")
    assert identity("model") == whole


def test_a_copy_differs_in_its_place_alone(model: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(model, tmp_path / "copy")
    one, other = identity(str(model)), identity(str(copy))
    assert one.pop("source") != other.pop("source")
    assert one == other


def test_another_config_and_other_headers_are_told_apart(model: Path, tmp_path: Path) -> None:
    one = identity(str(model))
    other = identity(str(write_tiny_checkpoint(tmp_path / "b", tiny_config(rms_norm_eps=0.5))))
    assert one["config"] != other["config"]
    assert one["tensors"] == other["tensors"]
    half = identity(str(write_tiny_checkpoint(tmp_path / "c", dtype=torch.float16)))
    assert half["tensors"] != one["tensors"]


def test_without_weights_the_rest_is_the_same(model: Path) -> None:
    whole = identity(str(model))
    for file in model.glob("*.safetensors"):
        file.unlink()
    bare = identity(str(model))
    assert bare == {name: value for name, value in whole.items() if name != "tensors"}


def test_a_hubs_commit_is_named(model: Path) -> None:
    assert identity(str(model), revision="abc")["revision"] == "abc"
