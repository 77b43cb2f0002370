from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
import torch

from dougong.checkpoint import open_tensors, resolve_reference
from dougong.errors import CheckpointError
from tests.support.checkpoints import LLAMA_CONFIG, write_shards

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int8]


@pytest.mark.parametrize("stored", DTYPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_stored_dtype_is_read_into_every_other(
    tmp_path: Path, stored: torch.dtype, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(0)
    values = (torch.randn(300, 700, generator=generator) * 9).to(stored)
    write_shards(tmp_path, [{"w": values}])
    source = open_tensors(resolve_reference(str(tmp_path)))
    assert source.shape("w") == (300, 700)
    assert torch.equal(source.read("w", dtype), values.to(dtype))


def test_names_go_shard_by_shard_in_file_order(tmp_path: Path) -> None:
    shards = [{"b": torch.ones(3), "a": torch.ones(2)}, {"c": torch.tensor(5.0)}]
    write_shards(tmp_path, shards)
    source = open_tensors(resolve_reference(str(tmp_path)))
    assert dict(source.items(torch.float32)).keys() == {"a", "b", "c"}
    assert source.names()[-1] == "c"
    assert source.format("c") == "F32"
    assert source.num_bytes("c") == 4
    assert source.read("c", torch.float32).shape == ()


def test_part_of_a_fused_weight_can_be_filled_in_place(tmp_path: Path) -> None:
    values = torch.arange(8.0).view(2, 4)
    write_shards(tmp_path, [{"w": values}])
    fused = torch.zeros(4, 4)
    open_tensors(resolve_reference(str(tmp_path))).read_into("w", fused[2:])
    assert torch.equal(fused[2:], values)
    assert not fused[:2].any()


def test_an_empty_tensor_is_read(tmp_path: Path) -> None:
    write_shards(tmp_path, [{"w": torch.empty(0, 4)}])
    source = open_tensors(resolve_reference(str(tmp_path)))
    assert source.read("w", torch.bfloat16).shape == (0, 4)


def write_raw(folder: Path, entry: dict[str, object], data: bytes) -> None:
    header = json.dumps({"w": entry}).encode()
    (folder / "config.json").write_text(json.dumps(LLAMA_CONFIG))
    content = struct.pack("<Q", len(header)) + header + data
    (folder / "model.safetensors").write_bytes(content)


def test_an_unknown_dtype_is_refused_by_name(tmp_path: Path) -> None:
    write_raw(tmp_path, {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}, b"\0")
    with pytest.raises(CheckpointError, match="stored as F4, which cannot be read"):
        open_tensors(resolve_reference(str(tmp_path)))


def test_a_length_that_contradicts_the_shape_is_refused(tmp_path: Path) -> None:
    write_raw(tmp_path, {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, b"\0" * 4)
    with pytest.raises(CheckpointError, match="takes 4 bytes, but its shape"):
        open_tensors(resolve_reference(str(tmp_path)))


def test_a_file_that_shrinks_after_the_check_is_an_error_and_not_garbage(tmp_path: Path) -> None:
    path = write_shards(tmp_path, [{"w": torch.ones(64)}])[0]
    source = open_tensors(resolve_reference(str(tmp_path)))
    path.write_bytes(path.read_bytes()[:-100])
    for dtype in (torch.float32, torch.bfloat16):
        with pytest.raises(CheckpointError, match="ended while it was being read"):
            source.read("w", dtype)
