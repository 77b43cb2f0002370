"""GGUF metadata translated into the vocabulary of config.json."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dougong.checkpoint.chunks import read_all
from dougong.checkpoint.gguf_header import GGUFHeader, read_gguf_header
from dougong.checkpoint.headers import TensorHeader
from dougong.checkpoint.rope_freqs import llama3_rope
from dougong.checkpoint.tied_head import has_tied_head
from dougong.errors import CheckpointError

_REQUIRED = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
}
_OPTIONAL = {
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "layer_norm_eps",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "rope.freq_base": "rope_theta",
    "rope.freq_base_swa": "rope_local_base_freq",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "vocab_size": "vocab_size",
}
_OPTIONAL_OF = {
    "granite": {
        "attention.scale": "attention_multiplier",
        "embedding_scale": "embedding_multiplier",
        "residual_scale": "residual_multiplier",
        "logit_scale": "logits_scaling",
    }
}
_LAYERS_OF_GEMMA3_27B = 62
_MODEL_TYPES = {"gemma3": "gemma3_text", "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe"}
_ARCHITECTURES = {
    "gemma3_text": "Gemma3ForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}
_ROPE_SCALING = {
    "factor": "factor",
    "original_context_length": "original_max_position_embeddings",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}
_TOKEN_IDS = {
    "tokenizer.ggml.bos_token_id": "bos_token_id",
    "tokenizer.ggml.eos_token_id": "eos_token_id",
    "tokenizer.ggml.padding_token_id": "pad_token_id",
}


def gguf_config(paths: Sequence[Path]) -> dict[str, Any]:
    """Return the configuration of a GGUF model, one key per fact its metadata states.

    What metadata does not say is read off the tensor entries: biases, a tied head, the vocabulary.
    The only tensor whose data is read is ``rope_freqs.weight`` (see `llama3_rope`).

    Args:
        paths: The file, or all parts of a split one, the part with the metadata first.

    Raises:
        CheckpointError: The architecture or a required fact is missing.
    """
    header = read_gguf_header(paths[0])
    entries = {e.stored_name: e for path in paths for e in read_gguf_header(path).tensors}
    config = _identity(header)
    config |= _facts(header)
    config |= {
        key: int(header.metadata[stored])
        for stored, key in _TOKEN_IDS.items()
        if stored in header.metadata
    }
    _fill_from_entries(config, header, entries)
    config["rope_scaling"] = _rope_scaling(header, config, entries)
    return config


def _identity(header: GGUFHeader) -> dict[str, Any]:
    if not header.architecture:
        raise CheckpointError(
            f"{header.path} does not say its architecture ('general.architecture'). "
            "It may be an adapter or a vocabulary file; name the model's own file."
        )
    model_type = _MODEL_TYPES.get(header.architecture, header.architecture.replace("-", "_"))
    camel = "".join(part.capitalize() for part in model_type.split("_"))
    name = _ARCHITECTURES.get(model_type, f"{camel}ForCausalLM")
    gelu = model_type.startswith("gemma")
    return {
        "model_type": model_type,
        "architectures": [name],
        "hidden_act": "gelu_pytorch_tanh" if gelu else "silu",
    } | ({"hidden_activation": "gelu_pytorch_tanh"} if gelu else {})


def _facts(header: GGUFHeader) -> dict[str, Any]:
    missing = [key for key in _REQUIRED if header.value(key) is None]
    if missing:
        raise CheckpointError(
            f"{header.path} lacks the metadata {', '.join(missing)} of its architecture "
            f"{header.architecture!r}. Convert the model again with a current converter."
        )
    names = _REQUIRED | _OPTIONAL | _OPTIONAL_OF.get(header.architecture, {})
    facts = {hf: header.value(key) for key, hf in names.items()}
    return {key: _plain(key, value, header) for key, value in facts.items() if value is not None}


def _plain(key: str, value: object, header: GGUFHeader) -> object:
    """One number: equal per-layer values become one, float32 values their shortest spelling."""
    if isinstance(value, tuple):
        if len(set(value)) != 1:
            raise CheckpointError(
                f"{header.path} has a different {key} per layer, which no model here supports: "
                f"{value}. Use a model with equal layers."
            )
        value = value[0]
    return shortest_float32(value) if isinstance(value, float) else value


def _fill_from_entries(
    config: dict[str, Any], header: GGUFHeader, entries: dict[str, TensorHeader]
) -> None:
    config.setdefault("num_key_value_heads", config["num_attention_heads"])
    config.setdefault("rope_theta", 10000.0)  # llama.cpp's default where none is stored
    rotary_dim = header.value("rope.dimension_count")
    if "head_dim" not in config and rotary_dim and header.architecture == "llama":
        config["head_dim"] = rotary_dim
    width = config["hidden_size"] // config["num_attention_heads"]
    config.setdefault("head_dim", width)
    if rotary_dim and header.architecture == "phi3":
        config["partial_rotary_factor"] = rotary_dim / config["head_dim"]
    if header.architecture == "gemma3":  # not stored: llama.cpp, too, knows the largest by its size
        is_largest = config["num_hidden_layers"] == _LAYERS_OF_GEMMA3_27B
        config["query_pre_attn_scalar"] = width if is_largest else config["head_dim"]
    if embedding := entries.get("token_embd.weight"):
        config["vocab_size"] = embedding.shape[0]
    config.setdefault("vocab_size", len(header.metadata.get("tokenizer.ggml.tokens", ())))
    config["attention_bias"] = "blk.0.attn_q.bias" in entries
    config["mlp_bias"] = "blk.0.ffn_up.bias" in entries
    config["tie_word_embeddings"] = has_tied_head([entry.name for entry in entries.values()])


def _rope_scaling(
    header: GGUFHeader, config: dict[str, Any], entries: dict[str, TensorHeader]
) -> dict[str, Any] | None:
    if (freqs := entries.get("rope_freqs.weight")) is not None:
        return llama3_rope(
            _read_floats(freqs), config["head_dim"], config["rope_theta"], freqs.path
        )
    if (long := entries.get("rope_factors_long.weight")) is not None:
        return _longrope(header, long, entries.get("rope_factors_short.weight"))
    kind = header.value("rope.scaling.type")
    if kind is None and (factor := header.value("rope.scale_linear")) not in (None, 1.0):
        return {"rope_type": "linear", "factor": shortest_float32(factor)}
    if kind in (None, "none"):
        return None
    scaling: dict[str, Any] = {"rope_type": kind}
    for stored, key in _ROPE_SCALING.items():
        if (value := header.value(f"rope.scaling.{stored}")) is not None:
            scaling[key] = shortest_float32(value) if isinstance(value, float) else value
    return scaling


def _longrope(header: GGUFHeader, long: TensorHeader, short: TensorHeader | None) -> dict[str, Any]:
    original = header.value("rope.scaling.original_context_length")
    if short is None or original is None:
        raise CheckpointError(
            f"{long.path} has {long.stored_name}, but not rope_factors_short.weight and the "
            "original context length that belong to it. Convert the model again with a current "
            "converter."
        )
    scaling = {
        "rope_type": "longrope",
        "long_factor": [shortest_float32(factor) for factor in _read_floats(long)],
        "short_factor": [shortest_float32(factor) for factor in _read_floats(short)],
        "original_max_position_embeddings": original,
    }
    stretch = header.value("rope.scaling.attn_factor")
    return scaling if stretch is None else {**scaling, "attention_factor": stretch}


def _read_floats(entry: TensorHeader) -> tuple[float, ...]:
    if entry.format != "F32":
        raise CheckpointError(
            f"{entry.stored_name} in {entry.path} is stored as {entry.format}; rotary factors are "
            "float32. Convert the model again with a current converter."
        )
    raw = bytearray(entry.num_bytes)
    read_all(entry.path, entry.offset_bytes, memoryview(raw))
    return struct.unpack(f"<{entry.num_elements}f", raw)


def shortest_float32(value: float) -> float:
    """The double with fewest digits that rounds to the same float32 (1e-05, not 9.99999975e-06)."""
    packed = struct.pack("<f", value)
    for digits in range(1, 9):
        candidate = float(f"{value:.{digits}g}")
        if struct.pack("<f", candidate) == packed:
            return candidate
    return value
