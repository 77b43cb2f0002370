"""Attention as models call it, and the backends that may compute it; who does is the plan's."""

from __future__ import annotations

from dougong.attention.first_use import FirstUse, watched_builder, watched_impl
from dougong.attention.layer import Attention, AttentionStep
from dougong.attention.loading import load_backends
from dougong.attention.outline import layers_by_index, need_of, outline_attention
from dougong.attention.outputs import AttentionOutputs
from dougong.attention.paired import PairedBackend
from dougong.attention.parts import check_attention_parts, make_builder, make_impl
from dougong.ops.guard import Classified

__all__ = [
    "Attention",
    "AttentionOutputs",
    "AttentionStep",
    "Classified",
    "FirstUse",
    "PairedBackend",
    "check_attention_parts",
    "layers_by_index",
    "load_backends",
    "make_builder",
    "make_impl",
    "need_of",
    "outline_attention",
    "watched_builder",
    "watched_impl",
]
