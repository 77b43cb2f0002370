"""Gemma 3, text models (Gemma Team 2025, arXiv:2503.19786)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from dougong.attention import AttentionStep
from dougong.describe.attention_layers import layer_windows
from dougong.errors import ConfigError
from dougong.models.causal_lm import CausalLM, WeightTarget
from dougong.models.decoder_settings import DecoderSettings, check_whole_heads
from dougong.models.llama import LlamaAttention, LlamaMLP, decoder_targets
from dougong.models.rotary import make_table
from dougong.models.rotary_settings import RotarySettings, read_rotary_settings
from dougong.ops import Embedding, FusedAddRMSNorm, LMHead, RMSNorm
from dougong.ops.scaling import Scale, SoftCap, rounded

_DEFAULT_HEAD_DIM = 256
_DEFAULT_QUERY_SCALAR = 256
_DEFAULT_WINDOW = 4096
_DEFAULT_LENGTH = 131_072  # with whatever scaling the config has
_GLOBAL_THETA, _LOCAL_THETA = 1_000_000.0, 10_000.0


class Gemma3ForCausalLM(CausalLM):
    """Decoder with norms before and after each half-layer, on queries and on keys.

    Layers with a sliding window have a rotary base of their own. Norms multiply by 1 + w; the 1 is
    added when weights are loaded.
    """

    def __init__(
        self,
        hf_config: Mapping[str, Any],
        dtype: torch.dtype,
        max_model_len: int | None = None,
    ) -> None:
        super().__init__(hf_config, dtype, max_model_len)
        settings = self.read_settings(hf_config)
        num_positions = max_model_len or settings.rotary.max_position_embeddings
        everywhere = make_table(settings.rotary, num_positions)
        nearby = make_table(read_local_rotary(hf_config, settings.head_dim), num_positions)
        self.embed_tokens = Embedding(settings.vocab_size, settings.hidden_size, dtype)
        self.scale_embeddings = Scale(rounded(math.sqrt(settings.hidden_size), dtype))
        self.layers = nn.ModuleList(
            Gemma3Layer(settings, index, everywhere if window is None else nearby, dtype)
            for index, window in enumerate(settings.sliding_windows)
        )
        self.norm = FusedAddRMSNorm(settings.hidden_size, settings.rms_norm_eps, dtype)
        tied = self.embed_tokens if settings.tie_word_embeddings else None
        self.lm_head = LMHead(settings.vocab_size, settings.hidden_size, dtype, tied)
        cap = _read_cap(hf_config, "final_logit_softcapping")
        self.cap_logits = None if cap is None else SoftCap(cap)

    @staticmethod
    def read_settings(hf_config: Mapping[str, Any]) -> DecoderSettings:
        """Of all layers; ``rotary`` is that of layers without a window.

        Raises:
            ConfigError: Sizes are missing or do not fit, or tokens may look ahead.
        """
        if hf_config.get("use_bidirectional_attention"):
            raise ConfigError(
                "use_bidirectional_attention is set: each token of this model sees those after it, "
                "so it predicts none. It is an embedding model; choose one that generates text."
            )
        config = {
            **hf_config,
            "model_type": "gemma3_text",
            "head_dim": hf_config.get("head_dim") or _DEFAULT_HEAD_DIM,
            "hidden_act": hf_config.get("hidden_activation", "gelu_pytorch_tanh"),
            "mlp_bias": False,
            "max_position_embeddings": hf_config.get("max_position_embeddings", _DEFAULT_LENGTH),
            "sliding_window": hf_config.get("sliding_window", _DEFAULT_WINDOW),
            "tie_word_embeddings": hf_config.get("tie_word_embeddings", True),
            **_rope_of(hf_config, "full_attention", "rope_theta", _GLOBAL_THETA),
        }
        settings = DecoderSettings.read(config)
        check_whole_heads(settings)
        scalar = float(hf_config.get("query_pre_attn_scalar", _DEFAULT_QUERY_SCALAR))
        return replace(
            settings,
            has_qk_norm=True,
            attention_scale=scalar**-0.5,
            attention_soft_cap=_read_cap(hf_config, "attn_logit_softcapping"),
            sliding_windows=layer_windows(config, settings.num_hidden_layers),
        )

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
        logits: torch.Tensor = self.lm_head(hidden)
        if self.cap_logits is not None:
            logits = self.cap_logits(logits)
        return logits

    def weight_targets(self) -> Mapping[str, WeightTarget]:
        targets = decoder_targets(self.embed_tokens, self.norm, self.lm_head, self.layers)
        return {
            name: replace(target, added=1.0) if name.endswith("norm.weight") else target
            for name, target in targets.items()
        }


class Gemma3Layer(nn.Module):
    """Attention, then MLP, each between two norms."""

    def __init__(
        self,
        settings: DecoderSettings,
        layer_index: int,
        cos_sin: torch.Tensor,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        hidden, eps = settings.hidden_size, settings.rms_norm_eps
        self.input_norm = FusedAddRMSNorm(hidden, eps, dtype)
        self.attention = LlamaAttention(settings, layer_index, cos_sin, dtype)
        self.post_attention_norm = RMSNorm(hidden, eps, dtype)
        self.pre_mlp_norm = FusedAddRMSNorm(hidden, eps, dtype)
        self.mlp = LlamaMLP(settings, dtype)
        self.post_mlp_norm = RMSNorm(hidden, eps, dtype)

    def __call__(
        self,
        x: torch.Tensor,
        residual: torch.Tensor | None,
        positions: torch.Tensor,
        step: AttentionStep,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x, residual = self.input_norm(x, residual)
        x = self.attention(x, positions, step)
        x = self.post_attention_norm(x)
        x, residual = self.pre_mlp_norm(x, residual)
        x = self.mlp(x)
        return self.post_mlp_norm(x), residual

    def targets(self) -> Iterator[tuple[str, WeightTarget]]:
        """Names within the layer, as the checkpoint writes them."""
        yield "input_layernorm.weight", WeightTarget(self.input_norm.weight)
        yield "post_attention_layernorm.weight", WeightTarget(self.post_attention_norm.weight)
        yield "pre_feedforward_layernorm.weight", WeightTarget(self.pre_mlp_norm.weight)
        yield "post_feedforward_layernorm.weight", WeightTarget(self.post_mlp_norm.weight)
        yield from self.attention.targets("self_attn")
        yield from self.mlp.targets("mlp")


def read_local_rotary(hf_config: Mapping[str, Any], head_dim: int) -> RotarySettings:
    """Rotary settings of layers with a window: never scaled in configs of the older spelling."""
    rope = _rope_of(hf_config, "sliding_attention", "rope_local_base_freq", _LOCAL_THETA)
    return read_rotary_settings({**hf_config, **rope}, head_dim)


def _rope_of(
    hf_config: Mapping[str, Any], kind: str, older_theta: str, default_theta: float
) -> dict[str, Any]:
    """The rotary keys of a config that has one kind of layer.

    The newer spelling has ``rope_parameters`` for each kind; the older one a base for each kind and
    a ``rope_scaling`` that is for layers without a window.
    """
    stated = hf_config.get("rope_parameters") or {}
    parameters = stated.get(kind)
    if not isinstance(parameters, Mapping):
        is_flat = "rope_type" in stated and kind == "full_attention"
        parameters = dict(stated) if is_flat else {}
    if kind == "full_attention" and hf_config.get("rope_scaling"):
        parameters = {**parameters, **hf_config["rope_scaling"]}
    theta = parameters.get("rope_theta") or hf_config.get(older_theta) or default_theta
    return {"rope_scaling": None, "rope_parameters": {**parameters, "rope_theta": theta}}


def _read_cap(hf_config: Mapping[str, Any], key: str) -> float | None:
    cap = hf_config.get(key)
    return None if cap is None else float(cap)
