from __future__ import annotations

import pytest

from dougong.errors import ConfigError
from dougong.models.decoder_settings import DecoderSettings
from dougong.models.llama import LlamaForCausalLM
from dougong.models.mistral import MistralForCausalLM
from tests.support.tiny_models import tiny_config


def test_absent_options_have_llamas_defaults() -> None:
    bare = {
        key: value
        for key, value in tiny_config().items()
        if key in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
    } | {"num_attention_heads": 4}
    settings = DecoderSettings.read(bare)
    assert settings.num_key_value_heads == 4
    assert settings.head_dim == 16
    assert settings.hidden_act == "silu"
    assert settings.rms_norm_eps == 1e-6
    assert not settings.attention_bias
    assert not settings.mlp_bias
    assert not settings.tie_word_embeddings
    assert settings.rotary.rope_type == "default"


def test_missing_and_impossible_sizes_are_reported_together() -> None:
    config = tiny_config(hidden_size=None, num_hidden_layers=0, vocab_size="many")
    with pytest.raises(ConfigError) as caught:
        DecoderSettings.read(config)
    for part in ("hidden_size=None", "num_hidden_layers=0", "vocab_size='many'"):
        assert part in str(caught.value)


def test_kv_heads_that_cannot_be_shared_evenly_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_key_value_heads=3"):
        DecoderSettings.read(tiny_config(num_key_value_heads=3))


def test_llama_with_partly_rotated_heads_is_refused_as_ambiguous() -> None:
    with pytest.raises(ConfigError, match="8 of 16 elements"):
        LlamaForCausalLM.read_settings(tiny_config(partial_rotary_factor=0.5))


def test_llama_knows_no_window() -> None:
    assert DecoderSettings.read(tiny_config(sliding_window=8)).sliding_windows == (None, None)


def test_mistral_reads_its_window_and_no_biases() -> None:
    config = tiny_config(attention_bias=True, mlp_bias=True)
    read = MistralForCausalLM.read_settings
    assert read({**config, "sliding_window": 8}).sliding_windows == (8, 8)
    assert read({**config, "sliding_window": None}).sliding_windows == (None, None)
    assert read(config).sliding_windows == (4096, 4096)
    assert not read(config).attention_bias
    assert not read(config).mlp_bias
