from __future__ import annotations

from dougong.models.qwen3 import Qwen3ForCausalLM
from tests.support.tiny_models import tiny_config


def test_qwen3_norms_queries_and_keys_and_has_biases_where_it_says() -> None:
    settings = Qwen3ForCausalLM.read_settings(tiny_config(mlp_bias=True))
    assert settings.has_qk_norm
    assert not (settings.attention_bias or settings.output_bias or settings.mlp_bias)
    settings = Qwen3ForCausalLM.read_settings(tiny_config(attention_bias=True))
    assert settings.attention_bias
    assert settings.output_bias


def test_heads_of_qwen3_are_128_wide_unless_the_config_says() -> None:
    assert Qwen3ForCausalLM.read_settings(tiny_config()).head_dim == 128
    assert Qwen3ForCausalLM.read_settings(tiny_config(head_dim=32)).head_dim == 32
