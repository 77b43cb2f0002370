from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType

from dougong.checkpoint import CheckpointFormat, resolve_reference
from dougong.errors import CheckpointError
from tests.support.checkpoints import random_rows, write_gguf, write_shards


def write_model(path: Path) -> Path:
    rows = random_rows(8, 64)
    return write_gguf(path, {"token_embd.weight": (rows, GGMLQuantizationType.F32)})


def test_a_folder_of_safetensors_is_found_with_its_index(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, [{"a": torch.ones(2)}, {"b": torch.ones(3)}])
    files = resolve_reference(str(tmp_path))
    assert files.format is CheckpointFormat.SAFETENSORS
    assert files.weights == tuple(paths)
    assert files.index == tmp_path / "model.safetensors.index.json"
    assert files.companion("config.json") == tmp_path / "config.json"
    assert files.companion("tokenizer.json") is None


def test_a_consolidated_copy_of_the_weights_is_not_read(tmp_path: Path) -> None:
    write_shards(tmp_path, [{"a": torch.ones(2)}], with_index=False)
    (tmp_path / "consolidated.safetensors").write_bytes(b"")
    assert [path.name for path in resolve_reference(str(tmp_path)).weights] == [
        "model-00001-of-00001.safetensors"
    ]


def test_a_gguf_file_describes_itself(tmp_path: Path) -> None:
    path = write_model(tmp_path / "tiny.gguf")
    (tmp_path / "tokenizer.json").write_text("{}")
    for reference in (path, tmp_path):
        files = resolve_reference(str(reference))
        assert files.format is CheckpointFormat.GGUF
        assert files.weights == (path,)
        assert files.companion("tokenizer.json") is None


def test_all_parts_of_a_split_gguf_belong_together(tmp_path: Path) -> None:
    names = [f"m-{number:05d}-of-00003.gguf" for number in (1, 2, 3)]
    for name in names:
        (tmp_path / name).write_bytes(b"")
    files = resolve_reference(str(tmp_path / names[1]))
    assert [path.name for path in files.weights] == names


def test_several_gguf_models_in_one_folder_must_be_chosen_from(tmp_path: Path) -> None:
    write_model(tmp_path / "a.gguf")
    write_model(tmp_path / "b.gguf")
    with pytest.raises(CheckpointError, match=r"several GGUF models: a\.gguf, b\.gguf"):
        resolve_reference(str(tmp_path))


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is empty"):
        resolve_reference(str(tmp_path))


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="holds no weights"):
        resolve_reference(str(tmp_path))


def test_pickled_weights_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"pickled files \(pytorch_model\.bin\)"):
        resolve_reference(str(tmp_path))


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"is not a \.gguf file"):
        resolve_reference(str(path))
