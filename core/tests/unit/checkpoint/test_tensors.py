from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType

from dougong.checkpoint import TensorSource, open_tensors, resolve_reference
from tests.support.checkpoints import random_rows, write_gguf, write_shards

ROWS = random_rows(8, 64)


def from_gguf(folder: Path) -> TensorSource:
    tensors = {"token_embd.weight": (ROWS, GGMLQuantizationType.F32)}
    return open_tensors(resolve_reference(str(write_gguf(folder / "m.gguf", tensors))))


def from_safetensors(folder: Path) -> TensorSource:
    write_shards(folder, [{"model.embed_tokens.weight": torch.from_numpy(ROWS)}])
    return open_tensors(resolve_reference(str(folder)))


@pytest.mark.parametrize("make", [from_gguf, from_safetensors])
def test_both_families_of_files_answer_alike(tmp_path: Path, make: object) -> None:
    assert callable(make)
    source = make(tmp_path)
    name = "model.embed_tokens.weight"
    assert source.names() == (name,)
    assert source.shape(name) == (8, 64)
    assert source.format(name) == "F32"
    assert source.num_bytes(name) == ROWS.nbytes
    assert torch.equal(source.read(name, torch.float32), torch.from_numpy(ROWS))
    out = torch.empty(8, 64, dtype=torch.bfloat16)
    source.read_into(name, out)
    assert torch.equal(out, torch.from_numpy(ROWS).bfloat16())
    assert [found for found, _ in source.items(torch.float32)] == [name]
