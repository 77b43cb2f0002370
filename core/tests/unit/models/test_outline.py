from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from dougong.attention import outline_attention
from dougong.errors import ConfigError, PluginError
from dougong.models.llama import LlamaForCausalLM
from dougong.models.loader import build_model
from dougong.models.mistral import MistralForCausalLM
from dougong.models.outline import outline_model
from dougong.ops.assignments import SAMPLER_PREFIX
from dougong.ops.outline import outline_ops
from tests.support.tiny_models import tensor_shapes, tiny_config


def test_an_outline_equals_the_built_model() -> None:
    config = tiny_config(attention_bias=True)
    outline = outline_model(LlamaForCausalLM, config, torch.float32)
    built = build_model(LlamaForCausalLM, config, torch.float32, torch.device("cpu"))
    of_model = [one for one in outline.ops if not one.path.startswith(SAMPLER_PREFIX)]
    assert tuple(replace(one, weight="") for one in of_model) == outline_ops(built)
    assert outline.attention == outline_attention(built)
    assert outline.num_parameters == sum(one.numel() for one in built.parameters())


def test_ops_that_share_a_weight_name_the_same_one_and_how_it_is_stored() -> None:
    config = tiny_config(tie_word_embeddings=True, num_hidden_layers=1)
    names = LlamaForCausalLM(config, torch.float32).weight_targets()
    formats = dict.fromkeys(names, "Q4_1") | {
        "model.embed_tokens.weight": "Q8_0",
        "model.layers.0.self_attn.v_proj.weight": "Q6_K",
        "model.norm.weight": "F32",
    }
    outline = outline_model(LlamaForCausalLM, config, torch.float32, format_of=formats)
    found = {one.path: (one.weight, one.stored_as) for one in outline.ops}
    table = ("embed_tokens.weight", "q8_0")
    assert found["embed_tokens"] == found["lm_head"] == table
    inner = "layers.0.mlp.gate_up.linear"
    assert found[inner] == found["layers.0.mlp.gate_up"] == (f"{inner}.weight", "q4_1")
    qkv = "layers.0.attention.qkv"
    assert found[qkv] == (f"{qkv}.weight", ""), "its three tensors are stored unlike"
    assert found["norm"][1] == ""
    assert found["layers.0.attention.norm_rope"] == ("", "")


def test_the_samplers_ops_come_after_the_models_under_a_prefix_of_their_own() -> None:
    paths = [one.path for one in outline_model(LlamaForCausalLM, tiny_config(), torch.float32).ops]
    is_sampler = [path.startswith(SAMPLER_PREFIX) for path in paths]
    assert is_sampler == sorted(is_sampler)
    assert f"{SAMPLER_PREFIX}greedy_sample" in paths
    assert len(paths) == len(set(paths))


@pytest.mark.parametrize("is_tied", [False, True])
def test_a_tied_head_counts_once(is_tied: bool) -> None:
    config = tiny_config(tie_word_embeddings=is_tied)
    shapes = [torch.Size(shape) for _, shape in tensor_shapes(config)]
    outline = outline_model(LlamaForCausalLM, config, torch.bfloat16)
    assert outline.num_parameters == sum(shape.numel() for shape in shapes)


def test_windows_of_the_config_are_there() -> None:
    config = tiny_config(architectures=["MistralForCausalLM"], sliding_window=32)
    outline = outline_model(MistralForCausalLM, config, torch.float32)
    (kind,) = outline.attention
    assert kind == replace(kind, sliding_window=32, layer_indices=(0, 1))


def test_nothing_is_computed_and_nothing_takes_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def table(*args: object) -> None:
        raise AssertionError("a rotary table of ten million rows")

    monkeypatch.setattr("dougong.models.rotary.cos_sin_table", table)
    config = tiny_config(
        vocab_size=10**7, hidden_size=2**16, max_position_embeddings=10**7, num_attention_heads=512
    )
    outline = outline_model(LlamaForCausalLM, config, torch.bfloat16)
    assert outline.num_parameters > 10**12


def test_a_config_that_the_class_refuses_is_refused_in_its_own_words() -> None:
    with pytest.raises(ConfigError, match="num_attention_heads=4 is no multiple"):
        outline_model(LlamaForCausalLM, tiny_config(num_key_value_heads=3), torch.float32)


class ReadsAValue(LlamaForCausalLM):
    def __init__(
        self, hf_config: Mapping[str, Any], dtype: torch.dtype, max_model_len: int | None = None
    ) -> None:
        super().__init__(hf_config, dtype, max_model_len)
        self.first = self.embed_tokens.weight[0, 0].item()


def test_a_class_that_reads_a_value_while_it_is_built_is_its_authors_fault() -> None:
    with pytest.raises(PluginError, match=r"ReadsAValue cannot be built on the meta device"):
        outline_model(ReadsAValue, tiny_config(), torch.float32)
