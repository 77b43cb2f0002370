"""Projections that take adapters, by the names of each family's checkpoints."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dougong.lora import adapter_elements, adapter_places
from dougong.models.causal_lm import CausalLM
from dougong.models.registry import ModelRegistry
from tests.support.family_models import family_config
from tests.support.tiny_adapters import TARGETS, adapter_pairs
from tests.support.tiny_models import tiny_config


def built(config: dict[str, Any]) -> CausalLM:
    cls = ModelRegistry().resolve(config["architectures"])
    assert issubclass(cls, CausalLM)
    with torch.device("meta"):
        return cls(config, torch.float32, 64)


def test_every_projection_of_every_layer_is_a_place_and_nothing_else_is() -> None:
    config = tiny_config()
    model = built(config)
    places = adapter_places(model, model.weight_targets())
    shapes = {one.name: (one.in_features, one.out_features) for one in places}
    pairs = adapter_pairs(config, TARGETS, 1, 0)
    assert shapes == {name: (a.shape[1], b.shape[0]) for name, (a, b) in pairs.items()}
    assert adapter_elements(places) == sum(a.numel() + b.numel() for a, b in pairs.values())


def test_projections_of_one_product_have_rows_of_their_own_side_by_side() -> None:
    model = built(tiny_config())
    found = adapter_places(model, model.weight_targets())
    places = {one.name.removeprefix("model.layers.0."): one for one in found}
    rows = [places[f"self_attn.{name}_proj"].rows for name in "qkv"]
    assert rows == [slice(0, 64), slice(64, 96), slice(96, 128)]
    assert places["self_attn.q_proj"].path == "layers.0.attention.qkv"
    assert places["mlp.up_proj"].rows == slice(96, 192)
    assert places["mlp.up_proj"].path == "layers.0.mlp.gate_up.linear"


@pytest.mark.parametrize(
    ("variant", "names"),
    [
        ("Phi-3", {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}),
        ("Gemma 3", set(TARGETS)),
        ("Qwen3", set(TARGETS)),
    ],
)
def test_each_family_has_the_places_of_its_own_checkpoints(variant: str, names: set[str]) -> None:
    model = built(family_config(variant))
    places = adapter_places(model, model.weight_targets())
    assert {one.name.rpartition(".")[2] for one in places} == names
