"""The Llama family (Touvron et al. 2023, arXiv:2302.13971): Llama 1 to 3.2, SmolLM2, their kin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from dougong.attention import Attention, AttentionStep
from dougong.models.causal_lm import CausalLM, WeightTarget
from dougong.models.decoder_settings import DecoderSettings, check_whole_heads
from dougong.models.rotary import make_table
from dougong.models.rotary_settings import default_num_positions
from dougong.ops import (
    Embedding,
    FusedAddRMSNorm,
    GateUpAct,
    Linear,
    LMHead,
    QKVNormRope,
)


class LlamaForCausalLM(CausalLM):
    """Decoder with RMSNorm before each half-layer, rotary positions and a gated MLP."""

    def __init__(
        self,
        hf_config: Mapping[str, Any],
        dtype: torch.dtype,
        max_model_len: int | None = None,
    ) -> None:
        super().__init__(hf_config, dtype, max_model_len)
        settings = self.read_settings(hf_config)
        num_positions = max_model_len or default_num_positions(settings.rotary)
        cos_sin = make_table(settings.rotary, num_positions)  # one for all layers
        self.embed_tokens = Embedding(settings.vocab_size, settings.hidden_size, dtype)
        self.layers = nn.ModuleList(
            self.make_layer(settings, index, cos_sin) for index in range(settings.num_hidden_layers)
        )
        self.norm = FusedAddRMSNorm(settings.hidden_size, settings.rms_norm_eps, dtype)
        tied = self.embed_tokens if settings.tie_word_embeddings else None
        self.lm_head = LMHead(settings.vocab_size, settings.hidden_size, dtype, tied)

    @staticmethod
    def read_settings(hf_config: Mapping[str, Any]) -> DecoderSettings:
        """What distinguishes relatives of this family: how they read the config."""
        settings = DecoderSettings.read(hf_config)
        check_whole_heads(settings)
        return settings

    def make_layer(
        self, settings: DecoderSettings, layer_index: int, cos_sin: torch.Tensor
    ) -> LlamaLayer:
        """One layer; for relatives whose layers compute something else."""
        return LlamaLayer(settings, layer_index, cos_sin, self.dtype)

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, step: AttentionStep
    ) -> torch.Tensor:
        x: torch.Tensor = self.embed_tokens(token_ids)
        residual: torch.Tensor | None = None
        for layer in self.layers:
            x, residual = layer(x, residual, positions, step)
        x, _ = self.norm(x, residual)
        return x

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.lm_head(hidden)
        return logits

    def weight_targets(self) -> Mapping[str, WeightTarget]:
        return decoder_targets(self.embed_tokens, self.norm, self.lm_head, self.layers)


class LlamaLayer(nn.Module):
    """Attention, then MLP, each on the normalised running sum."""

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
        self.post_attention_norm = FusedAddRMSNorm(hidden, eps, dtype)
        self.mlp = LlamaMLP(settings, dtype)

    def __call__(
        self,
        x: torch.Tensor,
        residual: torch.Tensor | None,
        positions: torch.Tensor,
        step: AttentionStep,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x, residual = self.input_norm(x, residual)
        x = self.attention(x, positions, step)
        x, residual = self.post_attention_norm(x, residual)
        return self.mlp(x), residual

    def targets(self) -> Iterator[tuple[str, WeightTarget]]:
        """Names within the layer, as the checkpoint writes them."""
        yield "input_layernorm.weight", WeightTarget(self.input_norm.weight)
        yield "post_attention_layernorm.weight", WeightTarget(self.post_attention_norm.weight)
        yield from self.attention.targets("self_attn")
        yield from self.mlp.targets("mlp")


class LlamaAttention(nn.Module):
    """Grouped-query attention with rotary positions; q, k and v come from one product.

    Relatives' settings may norm each head of q and k, and choose scale, cap and window.
    """

    def __init__(
        self,
        settings: DecoderSettings,
        layer_index: int,
        cos_sin: torch.Tensor,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        heads, kv_heads = settings.num_attention_heads, settings.num_key_value_heads
        head_dim, hidden = settings.head_dim, settings.hidden_size
        self.rows = {"q": heads * head_dim, "k": kv_heads * head_dim, "v": kv_heads * head_dim}
        self.qkv = Linear(hidden, sum(self.rows.values()), settings.attention_bias, dtype)
        rotary_dim, eps = settings.rotary.rotary_dim, settings.rms_norm_eps
        norm_eps = eps if settings.has_qk_norm else None
        self.norm_rope = QKVNormRope(
            heads, kv_heads, head_dim, rotary_dim, cos_sin, dtype, norm_eps
        )
        self.attention = Attention(
            layer_index,
            heads,
            kv_heads,
            head_dim,
            settings.attention_scale,
            settings.sliding_windows[layer_index],
            settings.attention_soft_cap,
        )
        self.out = Linear(heads * head_dim, hidden, settings.output_bias, dtype)

    def __call__(
        self, x: torch.Tensor, positions: torch.Tensor, step: AttentionStep
    ) -> torch.Tensor:
        q, k, v = self.norm_rope(self.qkv(x), positions)
        y: torch.Tensor = self.out(self.attention(q, k, v, step))
        return y

    def targets(self, prefix: str) -> Iterator[tuple[str, WeightTarget]]:
        """q, k and v side by side in one matrix."""
        sizes = {f"{prefix}.{letter}_proj": rows for letter, rows in self.rows.items()}
        yield from stacked_targets(self.qkv, sizes)
        yield from stacked_targets(self.out, {f"{prefix}.o_proj": self.out.out_features})
        q_norm, k_norm = self.norm_rope.q_norm, self.norm_rope.k_norm
        if q_norm is not None and k_norm is not None:
            yield f"{prefix}.q_norm.weight", WeightTarget(q_norm.weight)
            yield f"{prefix}.k_norm.weight", WeightTarget(k_norm.weight)


class LlamaMLP(nn.Module):
    """``down(act(gate(x)) * up(x))``."""

    def __init__(self, settings: DecoderSettings, dtype: torch.dtype) -> None:
        super().__init__()
        hidden, inner = settings.hidden_size, settings.intermediate_size
        self.gate_up = GateUpAct(hidden, inner, settings.hidden_act, settings.mlp_bias, dtype)
        self.down = Linear(inner, hidden, settings.mlp_bias, dtype)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.down(self.gate_up(x))
        return y

    def targets(self, prefix: str) -> Iterator[tuple[str, WeightTarget]]:
        """Gate above up in one matrix."""
        inner, hidden = self.down.in_features, self.down.out_features
        yield from stacked_targets(
            self.gate_up, {f"{prefix}.gate_proj": inner, f"{prefix}.up_proj": inner}
        )
        yield from stacked_targets(self.down, {f"{prefix}.down_proj": hidden})


def decoder_targets(
    embed_tokens: Embedding, norm: FusedAddRMSNorm, lm_head: LMHead, layers: Iterable[Any]
) -> dict[str, WeightTarget]:
    """Targets of a whole decoder, by the names that this family's checkpoints and its kin's have.

    Args:
        embed_tokens: The first step.
        norm: Behind the last layer.
        lm_head: A target of its own unless it is tied.
        layers: Each with ``targets()``: names within the layer, and targets.
    """
    targets = {
        "model.embed_tokens.weight": WeightTarget(embed_tokens.weight),
        "model.norm.weight": WeightTarget(norm.weight),
    }
    if not lm_head.is_tied:
        targets["lm_head.weight"] = WeightTarget(lm_head.weight)
    for index, layer in enumerate(layers):
        targets.update((f"model.layers.{index}.{name}", target) for name, target in layer.targets())
    return targets


def stacked_targets(
    linear: Linear | GateUpAct, sizes: Mapping[str, int]
) -> Iterator[tuple[str, WeightTarget]]:
    """Targets of projections whose weights, and biases, lie one after the other in ``linear``.

    Args:
        linear: The fused projection.
        sizes: Rows of each part, by its name in the checkpoint, in order.
    """
    start = 0
    for name, num_rows in sizes.items():
        rows = slice(start, start + num_rows)
        yield f"{name}.weight", WeightTarget(linear.weight, rows)
        if linear.bias is not None:
            yield f"{name}.bias", WeightTarget(linear.bias, rows)
        start += num_rows
