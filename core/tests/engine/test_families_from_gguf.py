"""The same tiny models as GGUF files, stored as converters store them: the same logits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType

from tests.support.checkpoints import write_gguf
from tests.support.family_models import TOKEN_IDS, family_config, load_family, make_family_pair
from tests.support.model_harness import ModelHarness

TOLERANCE = 1e-4
F32 = GGMLQuantizationType.F32
ARCHITECTURES = {
    "Qwen2": ("qwen2", gguf.MODEL_ARCH.QWEN2),
    "Qwen3": ("qwen3", gguf.MODEL_ARCH.QWEN3),
    "Phi-3, heads rotated in part, tied head": ("phi3", gguf.MODEL_ARCH.PHI3),
    "Phi-3, long LongRoPE": ("phi3", gguf.MODEL_ARCH.PHI3),
    "Granite": ("granite", gguf.MODEL_ARCH.GRANITE),
    "Gemma 3, pattern unsaid, biases": ("gemma3", gguf.MODEL_ARCH.GEMMA3),
}


def metadata(architecture: str, config: Mapping[str, Any], head_dim: int) -> dict[str, Any]:
    """What the usual keys leave out."""
    found: dict[str, Any] = {"attention.key_length": head_dim}
    rope = config.get("rope_parameters") or {}
    match architecture:
        case "granite":
            found |= {
                "attention.scale": config["attention_multiplier"],
                "embedding_scale": config["embedding_multiplier"],
                "residual_scale": config["residual_multiplier"],
                "logit_scale": config["logits_scaling"],
            }
        case "gemma3":
            found["attention.sliding_window"] = config["sliding_window"]
            found["rope.freq_base_swa"] = config["rope_local_base_freq"]
        case "phi3":
            share = config.get("partial_rotary_factor", 1.0)
            found["rope.dimension_count"] = int(head_dim * share)
            if "long_factor" in rope:
                original = config["original_max_position_embeddings"]
                factor = config["max_position_embeddings"] / original
                found["rope.scaling.original_context_length"] = original
                found["rope.scaling.attn_factor"] = math.sqrt(
                    1 + math.log(factor) / math.log(original)
                )
    return {f"{architecture}.{key}": value for key, value in found.items()}


def stored(
    architecture: str, config: Mapping[str, Any], weights: Mapping[str, torch.Tensor], kind: Any
) -> Iterator[tuple[str, torch.Tensor]]:
    names = gguf.get_tensor_name_map(kind, config["num_hidden_layers"])
    heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"]}
    for name, weight in weights.items():
        if config.get("tie_word_embeddings") and name == "lm_head.weight":
            continue
        stem, _, suffix = name.rpartition(".")
        place = names.get_name(stem)
        assert place is not None, name
        if architecture == "gemma3" and name.endswith("norm.weight"):
            weight = weight + 1
        if architecture == "granite" and stem.endswith(("q_proj", "k_proj")):
            weight = interleaved(weight, heads[stem[-6]])
        yield f"{place}.{suffix}", weight
    for key in ("long_factor", "short_factor"):
        if key in (rope := config.get("rope_parameters") or {}):
            yield f"rope_factors_{key.removesuffix('_factor')}.weight", torch.tensor(rope[key])


def interleaved(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Rows of each head as llama.cpp rotates them: 0, d/2, 1, d/2 + 1, ..."""
    halves = weight.view(num_heads, 2, -1, *weight.shape[1:])
    return halves.transpose(1, 2).reshape(weight.shape)


@pytest.mark.parametrize("variant", ARCHITECTURES)
def test_a_gguf_file_gives_the_logits_of_transformers(tmp_path: Path, variant: str) -> None:
    architecture, kind = ARCHITECTURES[variant]
    pair = make_family_pair(tmp_path / "theirs", variant)
    config = family_config(variant)
    settings = pair.theirs.config
    head_dim = getattr(settings, "head_dim", None) or 16
    if architecture == "gemma3":  # what converters do not store is the width of a head
        settings.query_pre_attn_scalar = head_dim
        for layer in pair.theirs.model.layers:
            layer.self_attn.scaling = head_dim**-0.5
    theta = config.get("rope_theta") or config["rope_parameters"].get("rope_theta", 10000.0)
    tensors: dict[str, tuple[np.ndarray, GGMLQuantizationType]] = {
        name: (weight.numpy(), F32)
        for name, weight in stored(architecture, config, pair.theirs.state_dict(), kind)
    }
    folder = tmp_path / "ours"
    folder.mkdir()
    write_gguf(
        folder / "m.gguf",
        tensors,
        architecture=architecture,
        config={**config, "rope_theta": theta},
        metadata=metadata(architecture, config, head_dim),
    )
    found = ModelHarness(load_family(folder)).logits(TOKEN_IDS, [7, 60, 1])
    torch.testing.assert_close(found, pair.expected(), rtol=0, atol=TOLERANCE)
