from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from dougong_conformance.zoo.embedders import (
    EMBEDDERS,
    encoder_weights,
    legal_vector_noise,
    vector_of,
    write_embedder,
)

TEXT = [5, 9, 40, 96, 33, 7, 7, 12]


def test_every_weight_is_the_same_number_in_every_compute_dtype() -> None:
    for weight in encoder_weights().values():
        for dtype in (torch.bfloat16, torch.float16):
            assert torch.equal(weight.to(dtype).double(), weight)


def test_the_encoder_is_the_one_that_torch_computes() -> None:
    weights = encoder_weights()
    words, positions, kinds = (
        weights[f"embeddings.{name}_embeddings.weight"]
        for name in ("word", "position", "token_type")
    )
    x = words[TEXT] + positions[: len(TEXT)] + kinds[0]
    weight, bias = (weights[f"embeddings.LayerNorm.{part}"] for part in ("weight", "bias"))
    x = nn.functional.layer_norm(x, (48,), weight, bias, 1e-5)
    for index in range(2):
        x = layer_of(f"encoder.layer.{index}")(x[None])[0]
    assert torch.allclose(vector_of(EMBEDDERS["first"], TEXT), x[0], atol=1e-12)
    mean = x.mean(dim=0)
    assert torch.allclose(vector_of(EMBEDDERS["mean"], TEXT), mean / mean.norm(), atol=1e-12)


def layer_of(prefix: str) -> nn.Module:
    weights = encoder_weights()
    layer = nn.TransformerEncoderLayer(
        48, 3, 80, dropout=0.0, activation="gelu", batch_first=True, dtype=torch.float64
    )
    named = {
        "self_attn.out_proj": "attention.output.dense",
        "norm1": "attention.output.LayerNorm",
        "linear1": "intermediate.dense",
        "linear2": "output.dense",
        "norm2": "output.LayerNorm",
    }
    state = {
        f"{ours}.{part}": weights[f"{prefix}.{theirs}.{part}"]
        for ours, theirs in named.items()
        for part in ("weight", "bias")
    }
    for part in ("weight", "bias"):
        names = (f"{prefix}.attention.self.{one}.{part}" for one in ("query", "key", "value"))
        state[f"self_attn.in_proj_{part}"] = torch.cat([weights[name] for name in names])
    layer.load_state_dict(state)
    return layer.requires_grad_(False)


@pytest.mark.parametrize("name", EMBEDDERS)
def test_another_token_changes_a_vector_far_beyond_what_rounding_can(name: str) -> None:
    model = EMBEDDERS[name]
    other = [*TEXT[:4], TEXT[4] + 1, *TEXT[5:]]
    moved = float((vector_of(model, TEXT) - vector_of(model, other)).abs().max())
    assert moved > 1000 * legal_vector_noise(model, TEXT, torch.float32)


@pytest.mark.parametrize("name", EMBEDDERS)
def test_the_files_say_how_vectors_are_made(name: str, tmp_path: Path) -> None:
    model = EMBEDDERS[name]
    folder = write_embedder(model, tmp_path / "model")
    modules = json.loads((folder / "modules.json").read_text("utf-8"))
    kinds = [one["type"].rpartition(".")[2] for one in modules]
    assert ("Normalize" in kinds) is model.is_normalized
    pooling = json.loads((folder / modules[1]["path"] / "config.json").read_text("utf-8"))
    assert [key for key, value in pooling.items() if value is True] == [
        {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}.get(
            model.method, "pooling_mode_lasttoken"
        )
    ]
    assert pooling["word_embedding_dimension"] == len(vector_of(model, TEXT))
    assert load_file(folder / "model.safetensors")
