"""Granite 3 (IBM 2024): Llama with a multiplier at each of four places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from dougong.attention import AttentionStep
from dougong.models.decoder_settings import DecoderSettings
from dougong.models.llama import LlamaForCausalLM, LlamaLayer
from dougong.ops.scaling import Scale


class GraniteForCausalLM(LlamaForCausalLM):
    """Embeddings, what each half-layer adds, attention scores and logits are scaled."""

    def __init__(
        self,
        hf_config: Mapping[str, Any],
        dtype: torch.dtype,
        max_model_len: int | None = None,
    ) -> None:
        super().__init__(hf_config, dtype, max_model_len)
        self.scale_embeddings = Scale(float(hf_config.get("embedding_multiplier", 1.0)))
        self.scale_logits = Scale(1.0 / float(hf_config.get("logits_scaling", 1.0)))

    @staticmethod
    def read_settings(hf_config: Mapping[str, Any]) -> DecoderSettings:
        settings = LlamaForCausalLM.read_settings(hf_config)
        scale = float(hf_config.get("attention_multiplier", 1.0))
        return replace(settings, attention_scale=scale)

    def make_layer(
        self, settings: DecoderSettings, layer_index: int, cos_sin: torch.Tensor
    ) -> GraniteLayer:
        residual_multiplier = float(self.hf_config.get("residual_multiplier", 1.0))
        return GraniteLayer(settings, layer_index, cos_sin, self.dtype, residual_multiplier)

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, step: AttentionStep
    ) -> torch.Tensor:
        x: torch.Tensor = self.scale_embeddings(self.embed_tokens(token_ids))
        residual: torch.Tensor | None = None
        for layer in self.layers:
            x, residual = layer(x, residual, positions, step)
        x, _ = self.norm(x, residual)
        return x

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.scale_logits(self.lm_head(hidden))
        return logits


class GraniteLayer(LlamaLayer):
    """Llama's, but what attention and MLP add to the running sum is scaled first."""

    def __init__(
        self,
        settings: DecoderSettings,
        layer_index: int,
        cos_sin: torch.Tensor,
        dtype: torch.dtype,
        residual_multiplier: float,
    ) -> None:
        super().__init__(settings, layer_index, cos_sin, dtype)
        self.scale_attention = Scale(residual_multiplier)
        self.scale_mlp = Scale(residual_multiplier)

    def __call__(
        self,
        x: torch.Tensor,
        residual: torch.Tensor | None,
        positions: torch.Tensor,
        step: AttentionStep,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x, residual = self.input_norm(x, residual)
        x = self.scale_attention(self.attention(x, positions, step))
        x, residual = self.post_attention_norm(x, residual)
        return self.scale_mlp(self.mlp(x)), residual
