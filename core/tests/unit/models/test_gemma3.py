from __future__ import annotations

from typing import Any

import pytest
import torch

from dougong.checkpoint.config import settle_rope
from dougong.errors import ConfigError
from dougong.models.gemma3 import Gemma3ForCausalLM, read_local_rotary
from dougong.models.outline import outline_model
from dougong.ops import CustomOp, RotaryEmbedding
from dougong.ops.scaling import Scale, SoftCap
from tests.support.tiny_models import tiny_config

OLDER: dict[str, Any] = {
    "rope_parameters": None,
    "rope_theta": 7000.0,
    "rope_local_base_freq": 300.0,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}
NEWER: dict[str, Any] = {
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 7000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
    },
}


def gemma(**changes: Any) -> dict[str, Any]:
    return tiny_config(
        model_type="gemma3_text", hidden_act=None, tie_word_embeddings=None, head_dim=32, **changes
    )


def test_what_a_config_leaves_out_is_as_in_the_family() -> None:
    settings = Gemma3ForCausalLM.read_settings(
        {**gemma(rope_parameters=None, max_position_embeddings=None), "head_dim": None}
    )
    assert settings.head_dim == 256
    assert settings.hidden_act == "gelu_pytorch_tanh"
    assert settings.attention_scale == 256**-0.5
    assert settings.attention_soft_cap is None
    assert settings.tie_word_embeddings
    assert settings.sliding_windows == (4096, 4096)
    assert settings.rotary.theta == 1e6
    assert settings.rotary.max_position_embeddings == 131_072
    assert read_local_rotary(gemma(rope_parameters=None), 32).theta == 10_000.0


def test_queries_are_scaled_by_a_number_of_their_own() -> None:
    settings = Gemma3ForCausalLM.read_settings(gemma(query_pre_attn_scalar=64))
    assert settings.attention_scale == 0.125


def test_windows_follow_the_pattern() -> None:
    config = gemma(num_hidden_layers=7, sliding_window=8)
    windows = Gemma3ForCausalLM.read_settings(config).sliding_windows
    assert windows == (8, 8, 8, 8, 8, None, 8)
    config["sliding_window_pattern"] = 2
    windows = Gemma3ForCausalLM.read_settings(config).sliding_windows
    assert windows == (8, None, 8, None, 8, None, 8)


@pytest.mark.parametrize("is_settled", [True, False])
@pytest.mark.parametrize("rope", [OLDER, NEWER], ids=["older", "newer"])
def test_every_kind_of_layer_has_its_base_and_only_wide_ones_are_scaled(
    rope: dict[str, Any], is_settled: bool
) -> None:
    config = gemma(**rope)
    if is_settled:
        settle_rope(config)
    wide = Gemma3ForCausalLM.read_settings(config).rotary
    assert (wide.rope_type, wide.theta, wide.number("factor")) == ("linear", 7000.0, 8.0)
    near = read_local_rotary(config, 32)
    assert (near.rope_type, near.theta) == ("default", 300.0)


def test_layers_of_one_kind_share_one_table() -> None:
    config = gemma(num_hidden_layers=4, sliding_window=8, sliding_window_pattern=2, **OLDER)
    model = Gemma3ForCausalLM(config, torch.float32, 50)
    found = [m.cos_sin_cache for m in model.modules() if isinstance(m, RotaryEmbedding)]
    assert [one.data_ptr() for one in found] == [one.data_ptr() for one in found[:2] * 2]
    assert found[0].shape == (50, 32)
    assert not torch.equal(found[0], found[1])


def test_all_norms_are_loaded_with_one_added_and_nothing_else_is() -> None:
    with torch.device("meta"):
        targets = Gemma3ForCausalLM(gemma(), torch.float32).weight_targets()
    added = {name.rsplit(".", 2)[1] for name, target in targets.items() if target.added}
    assert added == {
        *("norm", "q_norm", "k_norm", "input_layernorm", "post_attention_layernorm"),
        *("pre_feedforward_layernorm", "post_feedforward_layernorm"),
    }
    assert {target.added for target in targets.values()} == {0.0, 1.0}
    assert not any(target.added for name, target in targets.items() if "norm" not in name)


def test_targets_fill_every_element_of_every_parameter_once() -> None:
    config = gemma(attention_bias=True)
    model = Gemma3ForCausalLM(config, torch.float32)
    for parameter in model.parameters():
        parameter.zero_()
    for target in model.weight_targets().values():
        target.view.add_(1)
    assert all(bool((parameter == 1).all()) for parameter in model.parameters())
    owned = {id(p) for m in model.modules() if isinstance(m, CustomOp) for p in m.parameters()}
    assert {id(p) for p in model.parameters()} == owned


def test_embeddings_are_scaled_by_the_root_of_the_width_in_the_models_precision() -> None:
    def factor(dtype: torch.dtype) -> float:
        with torch.device("meta"):
            model = Gemma3ForCausalLM(gemma(hidden_size=640), dtype)
        (scale,) = (m for m in model.modules() if isinstance(m, Scale))
        return scale.factor

    assert factor(torch.bfloat16) == 25.25
    assert factor(torch.float32) == pytest.approx(640**0.5, rel=1e-7)


def test_caps_are_those_of_the_config() -> None:
    def caps(**changes: float) -> tuple[float | None, list[float]]:
        with torch.device("meta"):
            model = Gemma3ForCausalLM(gemma(**changes), torch.float32)
        outlined = outline_model(Gemma3ForCausalLM, gemma(**changes), torch.float32)
        (on_scores,) = {need.soft_cap for need in outlined.attention}
        return on_scores, [m.cap for m in model.modules() if isinstance(m, SoftCap)]

    assert caps() == (None, [])
    assert caps(attn_logit_softcapping=50.0, final_logit_softcapping=30.0) == (50.0, [30.0])


def test_a_model_whose_tokens_see_those_after_them_is_refused() -> None:
    with pytest.raises(ConfigError, match="embedding model"):
        Gemma3ForCausalLM.read_settings(gemma(use_bidirectional_attention=True))
