"""Numbers that every model has, and that must fit one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dougong.errors import CheckpointError

_REQUIRED = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
_OF_LATENT_HEADS = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def check_sizes(config: Mapping[str, Any], reference: str) -> None:
    """Refuse a language model's configuration that lacks or contradicts a size.

    Raises:
        CheckpointError: With every problem found.
    """
    required = (*_REQUIRED, *_OF_LATENT_HEADS) if config.get("kv_lora_rank") else _REQUIRED
    problems = [
        f"{name} is missing or no positive number"
        for name in required
        if not _is_positive(config.get(name))
    ]
    if problems := problems or list(_contradictions(config)):
        raise CheckpointError(f"The config of {reference} cannot be used:", tuple(problems))


def _is_positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _contradictions(config: Mapping[str, Any]) -> Iterator[str]:
    num_heads = config["num_attention_heads"]
    num_kv_heads = config.get("num_key_value_heads") or num_heads
    if not _is_positive(num_kv_heads):
        yield f"num_key_value_heads={num_kv_heads} is no one number for all layers"
    elif num_heads % num_kv_heads:
        yield f"{num_heads} heads cannot share {num_kv_heads} KV heads evenly"
    has_own_size = config.get("head_dim") or config.get("kv_lora_rank")
    if not has_own_size and config["hidden_size"] % num_heads:
        yield f"hidden_size={config['hidden_size']} is no multiple of {num_heads}"
