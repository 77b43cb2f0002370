from __future__ import annotations

import gguf
import pytest

from dougong.checkpoint.gguf_names import (
    hf_tensor_name,
    interleaved_projection,
    is_norm_plus_one,
)

ARCHITECTURES = {
    "gemma3": "GEMMA3",
    "granite": "GRANITE",
    "llama": "LLAMA",
    "phi3": "PHI3",
    "qwen2": "QWEN2",
    "qwen3": "QWEN3",
}


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_names_lead_back_through_the_librarys_map(architecture: str) -> None:
    """The library maps Hugging Face names to GGUF's; ours must be among those it maps."""
    kind = gguf.MODEL_ARCH[ARCHITECTURES[architecture]]
    forward = gguf.get_tensor_name_map(kind, 2)
    optional = {"rope_freqs", "blk.1.attn_rot_embd", "blk.1.ffn_gate_inp"}
    for tensor in gguf.MODEL_TENSORS[kind]:
        name = gguf.TENSOR_NAMES[tensor].format(bid=1)
        if name in optional or "exp" in name or tensor.name.startswith("DENSE"):
            continue
        theirs = hf_tensor_name(f"{name}.weight", architecture)
        if not theirs:  # settings
            continue
        assert theirs != f"{name}.weight", name
        assert forward.get_name(theirs.removesuffix(".weight")) == name


def test_settings_have_no_name_and_strangers_keep_theirs() -> None:
    assert hf_tensor_name("rope_freqs.weight", "llama") == ""
    assert hf_tensor_name("blk.3.rope_freqs.weight", "llama") == ""
    assert hf_tensor_name("blk.3.novel.weight", "llama") == "blk.3.novel.weight"


def test_only_query_and_key_of_llama_and_granite_are_interleaved() -> None:
    assert interleaved_projection("blk.0.attn_q.weight", "granite") == "q"
    assert interleaved_projection("blk.0.attn_q.weight", "llama") == "q"
    assert interleaved_projection("blk.11.attn_k.bias", "llama") == "k"
    assert interleaved_projection("blk.0.attn_v.weight", "llama") is None
    assert interleaved_projection("blk.0.attn_q_norm.weight", "llama") is None
    assert interleaved_projection("blk.0.attn_q.weight", "qwen3") is None


def test_only_gemmas_norms_carry_an_extra_one() -> None:
    assert is_norm_plus_one("blk.0.attn_norm.weight", "gemma3")
    assert is_norm_plus_one("output_norm.weight", "gemma2")
    assert not is_norm_plus_one("blk.0.attn_q.weight", "gemma3")
    assert not is_norm_plus_one("blk.0.attn_norm.weight", "llama")
