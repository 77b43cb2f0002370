"""Mixtures of experts, in each family's own spelling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dougong.describe.needs import ExpertsNeed

_COUNTS = ("num_local_experts", "n_routed_experts", "num_experts")
_TOP_K = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk")


def describe_experts(config: Mapping[str, Any], num_layers: int) -> ExpertsNeed | None:
    """The experts of a language model; ``None``: it has none.

    Args:
        config: Of the language model.
        num_layers: Decoder layers.
    """
    count = _first(config, _COUNTS)
    if not count or count < 2:
        return None
    return ExpertsNeed(
        num_experts=count,
        top_k=_first(config, _TOP_K) or 1,
        intermediate_size=int(config.get("moe_intermediate_size") or config["intermediate_size"]),
        num_shared_experts=_num_shared(config),
        layer_indices=tuple(index for index in range(num_layers) if _has_experts(config, index)),
    )


def _first(config: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((int(config[name]) for name in names if config.get(name)), None)


def _num_shared(config: Mapping[str, Any]) -> int:
    stated = config.get("n_shared_experts") or config.get("num_shared_experts")
    if stated:
        return int(stated)
    return 1 if config.get("shared_expert_intermediate_size") else 0


def _has_experts(config: Mapping[str, Any], index: int) -> bool:
    """Whether a decoder layer is sparse; the rules of different families do not contradict."""
    if index in (config.get("mlp_only_layers") or ()):
        return False
    if index < int(config.get("first_k_dense_replace") or 0):
        return False
    every = config.get("moe_layer_freq") or 1
    if isinstance(every, list | tuple):
        return bool(every[index])
    step = int(config.get("decoder_sparse_step") or 1)
    return index % int(every) == 0 and (index + 1) % step == 0
