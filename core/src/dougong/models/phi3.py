"""Phi-3 and Phi-4 mini (Abdin et al. 2024, arXiv:2404.14219): Llama with fused projections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dougong.models.causal_lm import WeightTarget
from dougong.models.decoder_settings import DecoderSettings
from dougong.models.llama import LlamaForCausalLM, LlamaLayer

_DEFAULT_ORIGINAL_LENGTH = 4096  # of a config that does not speak of it
_NAMES_OF_LONGROPE = ("su", "yarn")  # as the first configs of this family spelt it


class Phi3ForCausalLM(LlamaForCausalLM):
    """Llama without biases; a window for all layers or none, heads rotated whole or in part."""

    @staticmethod
    def read_settings(hf_config: Mapping[str, Any]) -> DecoderSettings:
        config = {**hf_config, "attention_bias": False, "mlp_bias": False}
        for key in ("rope_scaling", "rope_parameters"):
            config[key] = _with_longrope(config.get(key))
        settings = DecoderSettings.read(config)
        window = int(config.get("sliding_window") or 0) or None
        return replace(settings, sliding_windows=(window,) * settings.num_hidden_layers)

    def weight_targets(self) -> Mapping[str, WeightTarget]:
        """As Llama's, but q, k and v are one tensor of the checkpoint, and gate and up another."""
        parts = (".q_proj.", ".k_proj.", ".v_proj.", ".gate_proj.", ".up_proj.")
        targets = {
            name: target
            for name, target in super().weight_targets().items()
            if not any(part in name for part in parts)
        }
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, LlamaLayer)
            prefix = f"model.layers.{index}"
            qkv, gate_up = layer.attention.qkv, layer.mlp.gate_up
            targets[f"{prefix}.self_attn.qkv_proj.weight"] = WeightTarget(qkv.weight)
            targets[f"{prefix}.mlp.gate_up_proj.weight"] = WeightTarget(gate_up.weight)
        return targets


def _with_longrope(parameters: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if not parameters:
        return parameters
    kind = parameters.get("rope_type") or parameters.get("type")
    if kind not in ("longrope", *_NAMES_OF_LONGROPE):
        return parameters
    unstated = {"original_max_position_embeddings": _DEFAULT_ORIGINAL_LENGTH}
    return {**unstated, **parameters, "rope_type": "longrope"}
