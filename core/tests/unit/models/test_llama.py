from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from dougong.errors import ConfigError
from dougong.models.llama import LlamaForCausalLM
from dougong.models.loader import build_model
from dougong.ops import CustomOp, Linear, RotaryEmbedding
from tests.support.model_harness import ModelHarness, attention_layers
from tests.support.tiny_models import random_weights, tensor_shapes, tiny_config

CPU = torch.device("cpu")


def build(config: Mapping[str, Any], dtype: torch.dtype = torch.float32) -> LlamaForCausalLM:
    model = build_model(LlamaForCausalLM, config, dtype, CPU)
    assert isinstance(model, LlamaForCausalLM)
    return model


def filled(config: Mapping[str, Any], dtype: torch.dtype = torch.float32) -> LlamaForCausalLM:
    model = build(config, dtype)
    targets = model.weight_targets()
    for name, weight in random_weights(config).items():
        targets[name].view.copy_(weight)
    return model


CONFIGS = {
    "plain": tiny_config(),
    "tied": tiny_config(tie_word_embeddings=True),
    "biases": tiny_config(attention_bias=True, mlp_bias=True),
    "wide heads": tiny_config(head_dim=48, num_key_value_heads=1),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_targets_have_the_names_and_shapes_of_the_checkpoint(name: str) -> None:
    targets = build(CONFIGS[name]).weight_targets()
    shapes = {name: tuple(target.view.shape) for name, target in targets.items()}
    assert shapes == dict(tensor_shapes(CONFIGS[name]))


@pytest.mark.parametrize("name", CONFIGS)
def test_targets_fill_every_element_of_every_parameter_once(name: str) -> None:
    model = build(CONFIGS[name])
    for parameter in model.parameters():
        parameter.zero_()
    for target in model.weight_targets().values():
        target.view.add_(1)
    assert all(bool((parameter == 1).all()) for parameter in model.parameters())


def test_q_k_and_v_lie_one_after_the_other_and_gate_above_up() -> None:
    config = tiny_config()
    model, weights = filled(config), random_weights(config)
    fused = {tuple(p.shape): p for p in model.layers[1].parameters()}
    parts = [weights[f"model.layers.1.self_attn.{letter}_proj.weight"] for letter in "qkv"]
    assert torch.equal(fused[128, 64], torch.cat(parts))
    parts = [weights[f"model.layers.1.mlp.{part}_proj.weight"] for part in ("gate", "up")]
    assert torch.equal(fused[192, 64], torch.cat(parts))


def test_every_parameter_belongs_to_an_op() -> None:
    model = build(CONFIGS["biases"])
    owned = {id(p) for m in model.modules() if isinstance(m, CustomOp) for p in m.parameters()}
    assert {id(p) for p in model.parameters()} == owned


def test_all_layers_share_one_rotary_table_as_long_as_the_engine_needs() -> None:
    def table(max_model_len: int | None) -> torch.Tensor:
        model = LlamaForCausalLM(tiny_config(), torch.float32, max_model_len)
        rotaries = [module for module in model.modules() if isinstance(module, RotaryEmbedding)]
        assert len(rotaries) == len(model.layers)
        (only,) = {id(one.cos_sin_cache): one.cos_sin_cache for one in rotaries}.values()
        return only

    assert table(50).shape == (50, 16)
    assert table(None).shape == (256, 16)


def test_every_layer_has_the_fused_slots_with_their_parts_below_them() -> None:
    with torch.device("meta"):
        model = LlamaForCausalLM(tiny_config(), torch.float32)
    keys = {path: one.key for path, one in model.named_modules() if isinstance(one, CustomOp)}
    for index in range(len(model.layers)):
        assert {
            path.removeprefix(f"layers.{index}."): key
            for path, key in keys.items()
            if path.startswith(f"layers.{index}.")
        } == {
            "input_norm": "fused_add_rms_norm",
            "input_norm.norm": "rms_norm",
            "attention.qkv": "linear",
            "attention.norm_rope": "qkv_norm_rope",
            "attention.norm_rope.rotary": "rotary_embedding",
            "attention.out": "linear",
            "post_attention_norm": "fused_add_rms_norm",
            "post_attention_norm.norm": "rms_norm",
            "mlp.gate_up": "gate_up_act",
            "mlp.gate_up.linear": "linear",
            "mlp.gate_up.act": "silu_and_mul",
            "mlp.down": "linear",
        }


def test_attention_layers_count_from_zero_and_scale_by_the_head() -> None:
    layers = attention_layers(build(tiny_config(num_hidden_layers=3, head_dim=64)))
    assert [layer.layer_index for layer in layers] == [0, 1, 2]
    assert {layer.scale for layer in layers} == {0.125}


def test_biases_stand_where_the_config_puts_them() -> None:
    def with_bias(**changes: bool) -> int:
        model = build(tiny_config(**changes))
        return sum(m.bias is not None for m in model.modules() if isinstance(m, Linear))

    assert with_bias() == 0
    assert with_bias(attention_bias=True) == 4
    assert with_bias(mlp_bias=True) == 4  # the one inside the fused slot counts


def test_a_tied_head_owns_no_memory() -> None:
    tied, untied = build(CONFIGS["tied"]), build(CONFIGS["plain"])
    count = [sum(p.numel() for p in model.parameters()) for model in (tied, untied)]
    assert count[1] - count[0] == 288 * 64
    assert tied.lm_head.weight is tied.embed_tokens.weight


def test_activations_have_the_models_dtype_and_logits_are_float32() -> None:
    model = filled(tiny_config(), torch.bfloat16)
    reference = filled(tiny_config())
    ids = list(range(40))
    found = ModelHarness(model).logits(ids, [40])
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert found.dtype == torch.float32
    torch.testing.assert_close(
        found, ModelHarness(reference).logits(ids, [40]), rtol=0.05, atol=0.25
    )


def test_parameters_are_made_on_the_device_that_was_asked_for() -> None:
    model = build_model(LlamaForCausalLM, tiny_config(), torch.float32, torch.device("meta"))
    tensors = [*model.parameters(), *model.buffers()]
    assert {tensor.device.type for tensor in tensors} == {"meta"}


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(ConfigError, match="hidden_act='relu2'"):
        build(tiny_config(hidden_act="relu2"))
