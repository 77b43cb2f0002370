"""Qwen3 (Yang et al. 2025, arXiv:2505.09388): Llama with a norm on each head of q and of k."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dougong.describe.attention_layers import layer_windows
from dougong.models.decoder_settings import DecoderSettings
from dougong.models.llama import LlamaForCausalLM

_DEFAULT_HEAD_DIM = 128  # of a config that does not speak of it, whatever its width


class Qwen3ForCausalLM(LlamaForCausalLM):
    """Llama that norms queries and keys before it rotates them; windows as in Qwen2."""

    @staticmethod
    def read_settings(hf_config: Mapping[str, Any]) -> DecoderSettings:
        head_dim = hf_config.get("head_dim") or _DEFAULT_HEAD_DIM
        fixed = {"model_type": "qwen3", "head_dim": head_dim, "mlp_bias": False}
        config = {**hf_config, **fixed}
        settings = LlamaForCausalLM.read_settings(config)
        windows = layer_windows(config, settings.num_hidden_layers)
        return replace(settings, has_qk_norm=True, sliding_windows=windows)
