"""GGUF tensor names, and the value changes converters make, translated back to Hugging Face's.

A table of its own and not the gguf library's: that one maps many names to each GGUF name, so its
inverse is ambiguous (``attn_norm`` has some forty origins).
"""

from __future__ import annotations

import re

_TOP = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_sinks": "self_attn.sinks",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
}
_BLOCK_WITH_FOUR_NORMS = {**_BLOCK, "ffn_norm": "pre_feedforward_layernorm"}
_BLOCKS = {
    "gemma2": _BLOCK_WITH_FOUR_NORMS,
    "gemma3": _BLOCK_WITH_FOUR_NORMS,
    "phi3": {**_BLOCK, "ffn_up": "mlp.gate_up_proj"},
}
_NORMS_STORED_PLUS_ONE = frozenset({"gemma", "gemma2", "gemma3"})
_ROTARY_HALVES_INTERLEAVED = frozenset({"llama", "granite"})
_SETTINGS = frozenset({"rope_freqs", "rope_factors_long", "rope_factors_short"})
_BLOCK_NAME = re.compile(r"blk\.(\d+)\.(.+)\.(weight|bias)")
_QUERY_OR_KEY = re.compile(r"blk\.\d+\.attn_([qk])\.(weight|bias)")


def hf_tensor_name(name: str, architecture: str) -> str:
    """Hugging Face name of a GGUF tensor.

    Empty for tensors that carry settings and no weights (``rope_freqs.weight``: the config speaks
    of it). A name outside the table stays as it is, so that a loader names it when it has no use
    for it.
    """
    stem, _, suffix = name.rpartition(".")
    if stem in _TOP:
        return f"{_TOP[stem]}.{suffix}"
    match = _BLOCK_NAME.fullmatch(name)
    part = match[2] if match else stem
    if part in _SETTINGS:
        return ""
    blocks = _BLOCKS.get(architecture, _BLOCK)
    if match is None or part not in blocks:
        return name
    return f"model.layers.{match[1]}.{blocks[part]}.{match[3]}"


def interleaved_projection(name: str, architecture: str) -> str | None:
    """``"q"`` or ``"k"`` if a GGUF tensor's rows alternate between the two rotary halves.

    Converters store these families' q and k rows of each head as 0, d/2, 1, d/2+1, ... for
    llama.cpp's pairwise rotation; Hugging Face rotates halves, so the order must be undone. Other
    architectures keep their rows.
    """
    match = _QUERY_OR_KEY.fullmatch(name)
    return match[1] if match and architecture in _ROTARY_HALVES_INTERLEAVED else None


def is_norm_plus_one(name: str, architecture: str) -> bool:
    """Whether converters stored this norm's weight with 1 added (Gemma multiplies by 1 + w)."""
    return architecture in _NORMS_STORED_PLUS_ONE and name.endswith("norm.weight")
