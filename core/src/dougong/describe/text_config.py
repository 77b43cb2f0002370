"""The language model's part of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def text_config(hf_config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The nested part, where a checkpoint holds several models; else all of it."""
    nested = hf_config.get("text_config")
    return nested if isinstance(nested, Mapping) else hf_config
