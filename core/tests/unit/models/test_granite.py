from __future__ import annotations

import torch

from dougong.models.granite import GraniteForCausalLM
from dougong.ops.scaling import Scale
from tests.support.tiny_models import tiny_config


def factors(**changes: float) -> dict[str, float]:
    with torch.device("meta"):
        model = GraniteForCausalLM(tiny_config(num_hidden_layers=1, **changes), torch.float32)
    scales = [(path, op) for path, op in model.named_modules() if isinstance(op, Scale)]
    return {path: op.factor for path, op in scales}


def test_multipliers_stand_where_the_config_puts_them() -> None:
    found = factors(embedding_multiplier=12, residual_multiplier=0.22, logits_scaling=8)
    assert found == {
        "scale_embeddings": 12.0,
        "scale_logits": 0.125,
        "layers.0.scale_attention": 0.22,
        "layers.0.scale_mlp": 0.22,
    }


def test_what_the_config_leaves_out_is_one() -> None:
    assert set(factors().values()) == {1.0}
    assert GraniteForCausalLM.read_settings(tiny_config()).attention_scale == 1.0


def test_attention_scores_have_a_factor_of_their_own() -> None:
    config = tiny_config(attention_multiplier=0.015625, attention_bias=True)
    settings = GraniteForCausalLM.read_settings(config)
    assert settings.attention_scale == 0.015625
    assert settings.output_bias
