"""How long a sequence a checkpoint is made for, rope scaling included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LENGTH_NAMES = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length",
)  # fmt: skip
_STRETCHING = ("linear", "dynamic", "yarn")
"""Kinds of scaling whose ``factor`` comes on top of the stated length; with the others
(``llama3``, ``longrope``) the stated length has it already."""
_STATED_AFTER_SCALING = ("gemma3",)
"""Families whose stated length has any scaling already."""

_COUNTED_FROM_PADDING = ("roberta", "xlm-roberta", "camembert")
"""Families whose positions begin after that of the padding token."""


def resolve_max_position(hf_config: Mapping[str, Any]) -> tuple[int, str] | None:
    """Tokens, with how they came about; ``None`` where the checkpoint states no length."""
    name = next((name for name in _LENGTH_NAMES if hf_config.get(name)), None)
    if name is None:
        return None
    length = int(hf_config[name])
    if str(hf_config.get("model_type", "")) in _COUNTED_FROM_PADDING:
        padding = hf_config.get("pad_token_id")
        offset = 1 + (1 if padding is None else int(padding))
        return length - offset, f"{name}={length} of the checkpoint, less {offset} for padding"
    scaling = hf_config.get("rope_scaling") or {}
    kind = str(scaling.get("rope_type") or scaling.get("type") or "default")
    factor = float(scaling.get("factor") or 1.0)
    is_stretched = str(hf_config.get("model_type", "")).startswith(_STATED_AFTER_SCALING)
    if kind not in _STRETCHING or factor <= 1.0 or is_stretched:
        return length, f"{name}={length} of the checkpoint"
    original = int(scaling.get("original_max_position_embeddings") or length)
    stretched = int(original * factor)
    if kind == "yarn" and length >= stretched:
        return length, f"{name}={length} of the checkpoint, {kind} rope scaling included"
    return stretched, f"{kind} rope scaling, {original} tokens times {factor:g}"
