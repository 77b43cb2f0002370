"""An incomplete checkpoint is refused before any weight is read, naming file and tensors."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType

from dougong.checkpoint import check_complete, open_tensors, resolve_reference
from dougong.errors import CheckpointError
from tests.support.checkpoints import random_blocks, random_rows, write_gguf, write_shards

Q8_0 = GGMLQuantizationType.Q8_0
F32 = GGMLQuantizationType.F32


def quantised_shard(name: str) -> dict[str, torch.Tensor]:
    return {
        f"{name}.qweight": torch.zeros(64, 8, dtype=torch.int32),
        f"{name}.scales": torch.ones(16, 8, dtype=torch.float16),
    }


def plain_shard(name: str) -> dict[str, torch.Tensor]:
    return {f"{name}.weight": torch.ones(32, 16), f"{name}.norm": torch.ones(16)}


SHARDS = {"plain": plain_shard, "quantised": quantised_shard}


@pytest.fixture(params=sorted(SHARDS))
def shards(request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
    make = SHARDS[request.param]
    return write_shards(tmp_path, [make("first"), make("second")])


def refusal(folder: Path) -> str:
    files = resolve_reference(str(folder))
    with pytest.raises(CheckpointError) as caught:
        open_tensors(files)
    return str(caught.value)


def test_a_complete_checkpoint_passes(shards: list[Path]) -> None:
    check_complete(resolve_reference(str(shards[0].parent)))


def test_a_missing_shard_is_named_with_its_tensors(shards: list[Path]) -> None:
    shards[1].unlink()
    message = refusal(shards[1].parent)
    assert "model-00002-of-00002.safetensors, named by model.safetensors.index.json" in message
    assert "second." in message


def test_a_shard_cut_by_one_kib_is_named_with_its_tensors(shards: list[Path]) -> None:
    os.truncate(shards[0], shards[0].stat().st_size - 1024)
    message = refusal(shards[0].parent)
    assert "model-00001-of-00002.safetensors is cut short" in message
    assert "first." in message
    assert "second." not in message


def test_a_tensor_the_shard_lacks_is_named(shards: list[Path]) -> None:
    index = shards[0].parent / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["lost.weight"] = shards[1].name
    index.write_text(json.dumps(content))
    assert "model-00002-of-00002.safetensors lacks lost.weight" in refusal(index.parent)


def test_an_extra_shard_is_ignored_with_a_note(
    shards: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    extra = shards[0].with_name("old-model.safetensors")
    shutil.copy(shards[0], extra)
    with caplog.at_level(logging.INFO, logger="dougong"):
        source = open_tensors(resolve_reference(str(extra.parent)))
    assert "old-model.safetensors" in caplog.text
    assert len(source.names()) == 4


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, [plain_shard(name) for name in ("a", "b", "c")])
    paths[0].unlink()
    os.truncate(paths[2], 20)
    with pytest.raises(CheckpointError) as caught:
        check_complete(resolve_reference(str(tmp_path)))
    assert len(caught.value.problems) == 2


def test_a_gap_in_numbered_shards_shows_without_an_index(tmp_path: Path) -> None:
    shards = [plain_shard(name) for name in ("a", "b", "c")]
    paths = write_shards(tmp_path, shards, with_index=False)
    paths[1].unlink()
    assert "model-00002-of-00003.safetensors is missing" in refusal(tmp_path)


def test_a_tensor_in_two_shards_is_refused_without_an_index(tmp_path: Path) -> None:
    write_shards(tmp_path, [plain_shard("a"), plain_shard("a")], with_index=False)
    assert "a.norm is in both" in refusal(tmp_path)


def test_a_file_that_is_no_safetensors_is_refused(tmp_path: Path) -> None:
    write_shards(tmp_path, [plain_shard("a")])[0].write_bytes(b"")
    assert "not a usable safetensors file" in refusal(tmp_path)


def test_a_damaged_index_is_refused(tmp_path: Path) -> None:
    write_shards(tmp_path, [plain_shard("a")])
    index = tmp_path / "model.safetensors.index.json"
    index.write_text("{}")
    with pytest.raises(CheckpointError, match="not a usable safetensors index"):
        resolve_reference(str(tmp_path))
    index.write_text(json.dumps({"weight_map": {"a": "../elsewhere.safetensors"}}))
    with pytest.raises(CheckpointError, match="not a plain file name"):
        resolve_reference(str(tmp_path))


def test_a_cut_gguf_is_named_with_its_tensors(tmp_path: Path) -> None:
    tensors = {
        "token_embd.weight": (random_rows(8, 64), F32),
        "blk.0.ffn_up.weight": (random_blocks(Q8_0, 96, 64), Q8_0),
    }
    path = write_gguf(tmp_path / "tiny.gguf", tensors)
    os.truncate(path, path.stat().st_size - 1024)
    message = refusal(path)
    assert "tiny.gguf is cut short" in message
    assert "blk.0.ffn_up.weight" in message
    assert "token_embd" not in message


def test_a_missing_part_of_a_split_gguf_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m-00001-of-00002.gguf"
    write_gguf(path, {"token_embd.weight": (random_rows(8, 64), F32)})
    assert "m-00002-of-00002.gguf is missing" in refusal(path)
