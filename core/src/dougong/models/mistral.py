"""Mistral (Jiang et al. 2023, arXiv:2310.06825): Llama's computation within a sliding window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dougong.models.decoder_settings import DecoderSettings
from dougong.models.llama import LlamaForCausalLM

_DEFAULT_WINDOW = 4096  # of a config that does not speak of it; a null there means no window


class MistralForCausalLM(LlamaForCausalLM):
    """Llama without biases; every layer sees ``sliding_window`` tokens, or all where it is null."""

    @staticmethod
    def read_settings(hf_config: Mapping[str, Any]) -> DecoderSettings:
        window = hf_config.get("sliding_window", _DEFAULT_WINDOW)
        without_biases = {**hf_config, "attention_bias": False, "mlp_bias": False}
        settings = LlamaForCausalLM.read_settings(without_biases)
        windows = (None if window is None else int(window),) * settings.num_hidden_layers
        return replace(settings, sliding_windows=windows)
