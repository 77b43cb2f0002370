from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType

from dougong.checkpoint import open_tensors, resolve_reference
from dougong.checkpoint.tensors import TensorSource
from dougong.errors import CheckpointError
from tests.support.checkpoints import LLAMA_CONFIG, random_blocks, random_rows, write_gguf

F32 = GGMLQuantizationType.F32
HIDDEN, HEADS, KV_HEADS = (
    64,
    LLAMA_CONFIG["num_attention_heads"],
    LLAMA_CONFIG["num_key_value_heads"],
)
HEAD_DIM = HIDDEN // HEADS


def source_of(path: Path) -> TensorSource:
    return open_tensors(resolve_reference(str(path)))


def as_converters_store(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Row order of llama's q and k in GGUF: the two rotary halves of each head alternate."""
    halves = rows.reshape(num_heads, 2, rows.shape[0] // num_heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


def attention_rows() -> dict[str, np.ndarray]:
    return {
        "attn_q.weight": random_rows(HEADS * HEAD_DIM, HIDDEN, seed=1),
        "attn_k.weight": random_rows(KV_HEADS * HEAD_DIM, HIDDEN, seed=2),
        "attn_v.weight": random_rows(KV_HEADS * HEAD_DIM, HIDDEN, seed=3),
        "attn_q.bias": random_rows(1, HEADS * HEAD_DIM, seed=4)[0],
    }


def test_llama_projections_come_back_in_hugging_face_order(tmp_path: Path) -> None:
    original = attention_rows()
    stored = {
        "blk.0.attn_q.weight": as_converters_store(original["attn_q.weight"], HEADS),
        "blk.0.attn_k.weight": as_converters_store(original["attn_k.weight"], KV_HEADS),
        "blk.0.attn_v.weight": original["attn_v.weight"],
        "blk.0.attn_q.bias": as_converters_store(original["attn_q.bias"], HEADS),
    }
    path = write_gguf(tmp_path / "m.gguf", {name: (rows, F32) for name, rows in stored.items()})
    source = source_of(path)
    for part in ("q_proj.weight", "k_proj.weight", "v_proj.weight", "q_proj.bias"):
        rows = source.read(f"model.layers.0.self_attn.{part}", torch.float32)
        expected = original[f"attn_{part[0]}.{part.rpartition('.')[2]}"]
        assert torch.equal(rows, torch.from_numpy(expected)), part


def test_other_architectures_keep_their_rows(tmp_path: Path) -> None:
    rows = attention_rows()["attn_q.weight"]
    tensors = {"blk.0.attn_q.weight": (rows, F32)}
    path = write_gguf(tmp_path / "m.gguf", tensors, architecture="qwen2")
    read = source_of(path).read("model.layers.0.self_attn.q_proj.weight", torch.float32)
    assert torch.equal(read, torch.from_numpy(rows))


def test_gemma_norms_lose_the_one_that_converters_add(tmp_path: Path) -> None:
    tensors = {
        "output_norm.weight": (np.full(64, 1.25, dtype=np.float32), F32),
        "blk.0.ffn_norm.weight": (np.full(64, 1.5, dtype=np.float32), F32),
        "blk.0.post_attention_norm.weight": (np.ones(64, dtype=np.float32), F32),
    }
    path = write_gguf(tmp_path / "m.gguf", tensors, architecture="gemma3")
    values = {name: float(tensor[0]) for name, tensor in source_of(path).items(torch.float32)}
    assert values == {
        "model.norm.weight": 0.25,
        "model.layers.0.pre_feedforward_layernorm.weight": 0.5,
        "model.layers.0.post_attention_layernorm.weight": 0.0,
    }


def test_gemma_norms_are_rounded_after_the_one_is_gone(tmp_path: Path) -> None:
    stored = np.full(64, 1.003, dtype=np.float32)
    tensors = {"output_norm.weight": (stored, F32)}
    path = write_gguf(tmp_path / "m.gguf", tensors, architecture="gemma3")
    read = source_of(path).read("model.norm.weight", torch.bfloat16)
    assert torch.equal(read, (torch.from_numpy(stored) - 1).bfloat16())


@pytest.mark.parametrize("name", ["Q4_1", "Q8_0", "Q4_K", "Q3_K", "BF16"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_tensor_larger_than_a_chunk_is_read_whole(
    tmp_path: Path, name: str, dtype: torch.dtype
) -> None:
    kind = GGMLQuantizationType[name]
    if name == "BF16":
        raw = gguf.quants.quantize(random_rows(700, 1024), kind)
    else:
        raw = random_blocks(kind, 1500, 1024)
    path = write_gguf(tmp_path / "m.gguf", {"blk.1.ffn_up.weight": (raw, kind)})
    source = source_of(path)
    name_in_hf = "model.layers.1.mlp.up_proj.weight"
    expected = torch.from_numpy(gguf.quants.dequantize(raw, kind)).to(dtype)
    assert source.shape(name_in_hf) == tuple(expected.shape)
    assert source.format(name_in_hf) == name
    assert source.num_bytes(name_in_hf) == raw.nbytes
    assert torch.equal(source.read(name_in_hf, dtype), expected)


def test_part_of_a_fused_weight_can_be_filled_in_place(tmp_path: Path) -> None:
    rows = random_rows(96, 64)
    path = write_gguf(tmp_path / "m.gguf", {"blk.0.ffn_gate.weight": (rows, F32)})
    fused = torch.zeros(192, 64)
    source_of(path).read_into("model.layers.0.mlp.gate_proj.weight", fused[96:])
    assert torch.equal(fused[96:], torch.from_numpy(rows))
    assert not fused[:96].any()


def test_a_wrong_shape_or_name_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", {"output.weight": (random_rows(8, 64), F32)})
    source = source_of(path)
    with pytest.raises(CheckpointError, match=r"shape \[8, 64\].*expects \[64, 8\]"):
        source.read_into("lm_head.weight", torch.empty(64, 8))
    with pytest.raises(CheckpointError, match=r"no tensor 'model\.norm\.weight'"):
        source.read("model.norm.weight", torch.float32)


def test_types_that_cannot_be_decoded_are_refused_before_reading(tmp_path: Path) -> None:
    kind = GGMLQuantizationType.Q8_K
    _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    raw = np.zeros((4, block_bytes), dtype=np.uint8)
    path = write_gguf(tmp_path / "m.gguf", {"blk.0.ffn_up.weight": (raw, kind)})
    with pytest.raises(CheckpointError, match=r"Q8_K: blk\.0\.ffn_up\.weight"):
        source_of(path)


def test_names_are_given_in_file_order(tmp_path: Path) -> None:
    names = [
        "output.weight",
        "token_embd.weight",
        "blk.1.attn_norm.weight",
        "blk.0.ffn_down.weight",
    ]
    tensors = {name: (random_rows(2, 64), F32) for name in names}
    assert source_of(write_gguf(tmp_path / "m.gguf", tensors)).names() == (
        "lm_head.weight",
        "model.embed_tokens.weight",
        "model.layers.1.input_layernorm.weight",
        "model.layers.0.mlp.down_proj.weight",
    )


_MEASURE = """
import json, sys, torch
torch.set_num_threads(1)
from dougong.checkpoint import open_tensors, resolve_reference

def resident(key):
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith(key)) * 1024

source = open_tensors(resolve_reference(sys.argv[1]))
names = source.names()
source.read(names[0], torch.bfloat16)
before = resident("VmRSS:")
weights = [source.read(name, torch.bfloat16) for name in names[1:]]
size = sum(tensor.nbytes for tensor in weights)
print(json.dumps([resident("VmHWM:") - before, size]))
"""


def test_loading_needs_at_most_a_quarter_more_memory_than_the_weights(tmp_path: Path) -> None:
    """Two matrices hold most of the weights: the case in which a copy of a tensor would show."""
    q4_k = GGMLQuantizationType.Q4_K
    block_size, block_bytes = gguf.GGML_QUANT_SIZES[q4_k]
    blocks = np.zeros((8192, 2048 // block_size * block_bytes), dtype=np.uint8)
    tensors = {
        "output_norm.weight": (random_rows(1, 2048)[0], F32),
        "token_embd.weight": (blocks, q4_k),
        "output.weight": (np.zeros((8192, 2048), dtype=np.float32), F32),
    }
    path = write_gguf(tmp_path / "m.gguf", tensors)
    result = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(path)], capture_output=True, check=True, text=True
    )
    peak_bytes, weight_bytes = json.loads(result.stdout)
    assert weight_bytes == 2 * 8192 * 2048 * 2
    assert peak_bytes <= 1.25 * weight_bytes
