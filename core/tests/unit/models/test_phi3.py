from __future__ import annotations

from typing import Any

import pytest
import torch

from dougong.models.loader import build_model
from dougong.models.phi3 import Phi3ForCausalLM
from tests.support.tiny_models import ROPE_KINDS, tiny_config

LONGROPE = ROPE_KINDS["longrope"]


def test_there_are_no_biases_whatever_the_config_says() -> None:
    settings = Phi3ForCausalLM.read_settings(tiny_config(attention_bias=True, mlp_bias=True))
    assert not (settings.attention_bias or settings.output_bias or settings.mlp_bias)


@pytest.mark.parametrize(("stated", "window"), [(None, None), (0, None), (8, 8)])
def test_a_window_holds_for_all_layers(stated: int | None, window: int | None) -> None:
    settings = Phi3ForCausalLM.read_settings(tiny_config() | {"sliding_window": stated})
    assert settings.sliding_windows == (window, window)


def test_a_part_of_each_head_may_be_rotated() -> None:
    settings = Phi3ForCausalLM.read_settings(tiny_config(partial_rotary_factor=0.75))
    assert settings.rotary.rotary_dim == 12


@pytest.mark.parametrize("spelling", ["longrope", "su", "yarn"])
@pytest.mark.parametrize("key", ["rope_type", "type"])
def test_longrope_has_had_other_names(spelling: str, key: str) -> None:
    scaling: dict[str, Any] = {**LONGROPE, key: spelling}
    if key == "type":
        del scaling["rope_type"]
    settings = Phi3ForCausalLM.read_settings(tiny_config(rope_scaling=scaling))
    assert settings.rotary.rope_type == "longrope"
    assert settings.rotary.factors("long_factor") == LONGROPE["long_factor"]


def test_the_original_length_is_4096_unless_the_config_says() -> None:
    scaling = {k: v for k, v in LONGROPE.items() if k != "original_max_position_embeddings"}
    config = tiny_config(rope_scaling=scaling, max_position_embeddings=131_072)
    rotary = Phi3ForCausalLM.read_settings(config).rotary
    assert rotary.number("original_max_position_embeddings") == 4096


@pytest.mark.parametrize("is_beside", [True, False])
def test_the_original_length_may_stand_beside_the_factors_or_among_them(is_beside: bool) -> None:
    scaling = {k: v for k, v in LONGROPE.items() if k != "original_max_position_embeddings"}
    stated = {"original_max_position_embeddings": 32}
    config = tiny_config(rope_scaling=scaling if is_beside else {**scaling, **stated})
    rotary = Phi3ForCausalLM.read_settings(config | (stated if is_beside else {})).rotary
    assert rotary.number("original_max_position_embeddings") == 32


def test_projections_are_fused_in_the_checkpoint_too_and_fill_everything_once() -> None:
    model = build_model(Phi3ForCausalLM, tiny_config(), torch.float32, torch.device("cpu"))
    targets = model.weight_targets()
    in_layer = {name.split(".", 3)[3] for name in targets if name.startswith("model.layers.1.")}
    assert in_layer == {
        "input_layernorm.weight",
        "post_attention_layernorm.weight",
        "self_attn.qkv_proj.weight",
        "self_attn.o_proj.weight",
        "mlp.gate_up_proj.weight",
        "mlp.down_proj.weight",
    }
    for parameter in model.parameters():
        parameter.zero_()
    for target in targets.values():
        target.view.add_(1)
    assert all(bool((parameter == 1).all()) for parameter in model.parameters())
