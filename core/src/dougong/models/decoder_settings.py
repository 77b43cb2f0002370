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
        attention_bias: Whether the projections to q, k and v have a bias.
        output_bias: Whether the projection of what attention found has one.
        mlp_bias: Whether the three MLP projections have one.
        has_qk_norm: Whether each head of q and of k is normalised before it is rotated.
        attention_scale: Factor of ``q @ k``.
        attention_soft_cap: Cap on scores; ``None``: none.
        sliding_windows: Of each layer the tokens a query sees, itself included; ``None``: all.
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
    output_bias: bool
    mlp_bias: bool
    has_qk_norm: bool
    attention_scale: float
    attention_soft_cap: float | None
    sliding_windows: tuple[int | None, ...]
    tie_word_embeddings: bool
    rotary: RotarySettings

    @classmethod
    def read(cls, hf_config: Mapping[str, Any]) -> Self:
        """Read a Llama config; absent options have `transformers`' defaults for Llama.

        Relatives read it so too, with what they have fixed put in its place, and replace what
        Llama does not have.

        Raises:
            ConfigError: Sizes are missing or do not fit each other; all problems in one message.
        """
        sizes = _read_sizes(hf_config)
        heads, hidden = sizes["num_attention_heads"], sizes["hidden_size"]
        head_dim = int(hf_config.get("head_dim") or hidden // heads)
        attention_bias = bool(hf_config.get("attention_bias", False))
        return cls(
            **sizes,
            num_key_value_heads=_read_kv_heads(hf_config, heads),
            head_dim=head_dim,
            hidden_act=str(hf_config.get("hidden_act", "silu")),
            rms_norm_eps=float(hf_config.get("rms_norm_eps", 1e-6)),
            attention_bias=attention_bias,
            output_bias=attention_bias,
            mlp_bias=bool(hf_config.get("mlp_bias", False)),
            has_qk_norm=False,
            attention_scale=head_dim**-0.5,
            attention_soft_cap=None,
            sliding_windows=(None,) * sizes["num_hidden_layers"],
            tie_word_embeddings=bool(hf_config.get("tie_word_embeddings", False)),
            rotary=read_rotary_settings(hf_config, head_dim),
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


def check_whole_heads(settings: DecoderSettings) -> None:
    """Refuse a config that rotates a part of each head, where the family's own code never does.

    Raises:
        ConfigError: It does.
    """
    rotary_dim, head_dim = settings.rotary.rotary_dim, settings.head_dim
    if rotary_dim != head_dim:
        raise ConfigError(
            f"The config rotates only {rotary_dim} of {head_dim} elements of each head "
            "(partial_rotary_factor). This family's own code rotates whole heads whatever that key "
            "says, so which one the model was trained with is unknown. Remove the key, or use the "
            "architecture that the model belongs to."
        )
