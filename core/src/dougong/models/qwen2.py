"""Qwen2 and Qwen2.5 (Yang et al. 2024, arXiv:2407.10671): Llama with biases on q, k and v."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dougong.describe.attention_layers import layer_windows
from dougong.models.decoder_settings import DecoderSettings
from dougong.models.llama import LlamaForCausalLM


class Qwen2ForCausalLM(LlamaForCausalLM):
    """Llama whose q, k and v have biases, and nothing else has; a window in some layers if asked.

    A config may state ``sliding_window`` and not use it: ``use_sliding_window`` says.
    """

    @staticmethod
    def read_settings(hf_config: Mapping[str, Any]) -> DecoderSettings:
        fixed = {"model_type": "qwen2", "attention_bias": True, "mlp_bias": False}
        config = {**hf_config, **fixed}
        settings = LlamaForCausalLM.read_settings(config)
        windows = layer_windows(config, settings.num_hidden_layers)
        return replace(settings, output_bias=False, sliding_windows=windows)
