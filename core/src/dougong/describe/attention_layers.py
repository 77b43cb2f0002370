"""Which attention layers see how far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dougong.config.model import AttentionLayerKind


def describe_attention_layers(
    hf_config: Mapping[str, Any], num_layers: int
) -> tuple[AttentionLayerKind, ...]:
    """Layers by window, those without one first.

    ``layer_types`` decides where it is given; otherwise a ``sliding_window`` holds for every layer,
    unless ``use_sliding_window`` is false.
    """
    window = hf_config.get("sliding_window")
    if hf_config.get("use_sliding_window") is False:
        window = None
    kinds = hf_config.get("layer_types")
    by_window: dict[int | None, list[int]] = {}
    for index in range(num_layers):
        is_sliding = kinds[index] == "sliding_attention" if kinds else True
        by_window.setdefault(int(window) if window and is_sliding else None, []).append(index)
    ordered = sorted(by_window.items(), key=lambda item: (item[0] is not None, item[0] or 0))
    return tuple(AttentionLayerKind(tuple(layers), size) for size, layers in ordered)
