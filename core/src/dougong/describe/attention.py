"""Kinds of attention layers, by everything a backend may be asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dougong.describe.attention_layers import describe_attention_layers
from dougong.describe.needs import AttentionNeed

_WITH_SINKS = frozenset({"gpt_oss"})  # families whose files do not say it


@dataclass(frozen=True, slots=True)
class HeadSizes:
    """Sizes of one head.

    Attributes:
        head_dim: Elements of q and k.
        head_dim_v: Of v; ``None``: as many.
        kv_lora_rank: Of latent attention; ``None``: it is plain.
        rope_head_dim: Rotated elements of a latent head; ``None``: it is plain.
        source: How ``head_dim`` came about.
    """

    head_dim: int
    head_dim_v: int | None = None
    kv_lora_rank: int | None = None
    rope_head_dim: int | None = None
    source: str = ""


def head_sizes(config: Mapping[str, Any]) -> HeadSizes:
    """Of the language model whose sizes were found in order."""
    if rank := config.get("kv_lora_rank"):
        plain, rotated = int(config["qk_nope_head_dim"]), int(config["qk_rope_head_dim"])
        return HeadSizes(
            plain + rotated,
            int(config["v_head_dim"]),
            int(rank),
            rotated,
            f"qk_nope_head_dim={plain} and qk_rope_head_dim={rotated} of the checkpoint",
        )
    if stated := config.get("head_dim"):
        return HeadSizes(int(stated), source="head_dim of the checkpoint's config")
    hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
    return HeadSizes(
        hidden // heads, source=f"hidden_size={hidden} of the checkpoint over its {heads} heads"
    )


def describe_attention(config: Mapping[str, Any], num_layers: int) -> tuple[AttentionNeed, ...]:
    """Kinds of attention layers, those without a window first.

    Args:
        config: Of the language model.
        num_layers: Decoder layers.

    Raises:
        CheckpointError: As `describe_attention_layers`.
    """
    sizes = head_sizes(config)
    num_heads = int(config["num_attention_heads"])
    soft_cap = config.get("attn_logit_softcapping")
    return tuple(
        AttentionNeed(
            layer_indices=kind.layer_indices,
            num_heads=num_heads,
            num_kv_heads=int(config.get("num_key_value_heads") or num_heads),
            head_dim=sizes.head_dim,
            head_dim_v=sizes.head_dim_v,
            sliding_window=kind.sliding_window,
            soft_cap=float(soft_cap) if soft_cap else None,
            has_sinks=config.get("model_type") in _WITH_SINKS,
            kv_lora_rank=sizes.kv_lora_rank,
            rope_head_dim=sizes.rope_head_dim,
        )
        for kind in describe_attention_layers(config, num_layers)
    )
