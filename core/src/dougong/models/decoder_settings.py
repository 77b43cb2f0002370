"""The numbers of a decoder of Llama's shape, read from a config once and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from dougong.errors import ConfigError
from dougong.models.rotary_settings import RotarySettings, read_rotary_settings

_REQUIRED = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSettings:
    """Geometry and options of every layer; field names are the config's.

    Attributes:
        attention_bias: Whether all four attention projections have a bias.
        mlp_bias: Whether the three MLP projections have one.
        sliding_window: Tokens a query sees, itself included; ``None``: all.
        rotary: Rotary settings.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    hidden_act: str
    rms_norm_eps: float
    attention_bias: bool
    mlp_bias: bool
    sliding_window: int | None
    tie_word_embeddings: bool
    rotary: RotarySettings

    @classmethod
    def read(cls, hf_config: Mapping[str, Any]) -> Self:
        """Read a Llama config; absent options have `transformers`' defaults for Llama.

        Raises:
            ConfigError: Sizes are missing or do not fit each other; all problems in one message.
        """
        sizes = _read_sizes(hf_config)
        heads, hidden = sizes["num_attention_heads"], sizes["hidden_size"]
        head_dim = int(hf_config.get("head_dim") or hidden // heads)
        rotary = read_rotary_settings(hf_config, head_dim)
        _check_whole_heads(rotary, head_dim)
        return cls(
            **sizes,
            num_key_value_heads=_read_kv_heads(hf_config, heads),
            head_dim=head_dim,
            hidden_act=str(hf_config.get("hidden_act", "silu")),
            rms_norm_eps=float(hf_config.get("rms_norm_eps", 1e-6)),
            attention_bias=bool(hf_config.get("attention_bias", False)),
            mlp_bias=bool(hf_config.get("mlp_bias", False)),
            sliding_window=None,
            tie_word_embeddings=bool(hf_config.get("tie_word_embeddings", False)),
            rotary=rotary,
        )


def _read_sizes(hf_config: Mapping[str, Any]) -> dict[str, int]:
    wrong = [
        f"{key}={hf_config.get(key)!r}"
        for key in _REQUIRED
        if not isinstance(hf_config.get(key), int) or hf_config[key] < 1
    ]
    if wrong:
        raise ConfigError(
            "The checkpoint's config must state these as integers of 1 or more; it has "
            f"{', '.join(wrong)}. Fetch or copy its config.json again."
        )
    return {key: int(hf_config[key]) for key in _REQUIRED}


def _read_kv_heads(hf_config: Mapping[str, Any], num_heads: int) -> int:
    num_kv_heads = int(hf_config.get("num_key_value_heads") or num_heads)
    if num_heads % num_kv_heads:
        raise ConfigError(
            f"num_attention_heads={num_heads} is no multiple of "
            f"num_key_value_heads={num_kv_heads}, so KV heads cannot be shared evenly. "
            "Fetch or copy the checkpoint's config.json again."
        )
    return num_kv_heads


def _check_whole_heads(rotary: RotarySettings, head_dim: int) -> None:
    if rotary.rotary_dim != head_dim:
        raise ConfigError(
            f"The config rotates only {rotary.rotary_dim} of {head_dim} elements of each head "
            "(partial_rotary_factor). Llama's own code rotates whole heads whatever that key says, "
            "so which one the model was trained with is unknown. Remove the key, or use the "
            "architecture that the model belongs to."
        )
