from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType

from dougong.checkpoint import (
    find_weight_summary,
    has_tied_head,
    read_weight_summary,
    resolve_reference,
)
from dougong.checkpoint.weight_summary import FormatShare, dtype_for_format
from tests.support.checkpoints import random_blocks, random_rows, write_gguf, write_shards


def test_formats_are_counted_with_the_largest_first(tmp_path: Path) -> None:
    q4, f32 = GGMLQuantizationType.Q4_1, GGMLQuantizationType.F32
    tensors = {
        "output_norm.weight": (random_rows(1, 64)[0], f32),
        "token_embd.weight": (random_blocks(q4, 128, 64), q4),
        "rope_freqs.weight": (random_rows(1, 8)[0], f32),
    }
    path = write_gguf(tmp_path / "m.gguf", tensors)
    summary = read_weight_summary(resolve_reference(str(path)))
    assert list(summary.formats.items()) == [
        ("Q4_1", FormatShare(num_tensors=1, num_parameters=8192, num_bytes=5120)),
        ("F32", FormatShare(num_tensors=1, num_parameters=64, num_bytes=256)),
    ]
    assert (summary.num_parameters, summary.num_bytes) == (8256, 5376)
    assert (summary.main_format, summary.torch_dtype) == ("Q4_1", "bfloat16")
    assert summary.is_tied
    assert summary.names == ("model.norm.weight", "model.embed_tokens.weight")


def test_safetensors_are_summarised_alike(tmp_path: Path) -> None:
    half = torch.ones(8, 4, dtype=torch.float16)
    write_shards(tmp_path, [{"model.embed_tokens.weight": half}, {"lm_head.weight": half}])
    summary = read_weight_summary(resolve_reference(str(tmp_path)))
    assert summary.formats == {"F16": FormatShare(2, 64, 128)}
    assert summary.torch_dtype == "float16"
    assert not summary.is_tied


@pytest.mark.parametrize(
    ("storage_format", "dtype"),
    [("F64", "float32"), ("F32", "float32"), ("F16", "float16"), ("Q6_K", "bfloat16")],
)
def test_every_format_has_a_dtype_to_compute_in(storage_format: str, dtype: str) -> None:
    assert dtype_for_format(storage_format) == dtype


def test_the_head_is_tied_exactly_when_the_files_hold_none() -> None:
    assert has_tied_head(["model.embed_tokens.weight"])
    assert not has_tied_head(["model.embed_tokens.weight", "lm_head.weight"])


@pytest.mark.parametrize("with_index", [True, False])
def test_a_missing_shard_leaves_no_sum(tmp_path: Path, with_index: bool) -> None:
    shards = [{"a": torch.ones(2)}, {"b": torch.ones(3)}]
    paths = write_shards(tmp_path, shards, with_index=with_index)
    whole = find_weight_summary(resolve_reference(str(tmp_path)))
    assert whole is not None
    assert whole.num_parameters == 5
    paths[1].unlink()
    assert find_weight_summary(resolve_reference(str(tmp_path))) is None
