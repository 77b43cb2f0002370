"""Attention as models call it, and the choice of who computes it."""

from __future__ import annotations

from dougong.attention.choice import AttentionChoice, choose_backend
from dougong.attention.layer import Attention, AttentionStep
from dougong.attention.parts_check import check_attention_parts

__all__ = [
    "Attention",
    "AttentionChoice",
    "AttentionStep",
    "check_attention_parts",
    "choose_backend",
]
