"""Whose keys and values a request's blocks hold, beside what its tokens say."""

from __future__ import annotations

from dougong.messages import LoRARef


def block_owner(lora: LoRARef | None) -> str:
    """Equal for requests that may share blocks of equal tokens; empty for the model alone."""
    return "" if lora is None else f"lora {lora.load_number} {lora.name}"
