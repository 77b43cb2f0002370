"""What a built model asks of attention backends."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from dougong.attention.layer import Attention
from dougong.contracts import PluginError
from dougong.describe import AttentionNeed


def outline_attention(model: nn.Module) -> tuple[AttentionNeed, ...]:
    """Kinds of attention layers, in the order in which the model first has them.

    Args:
        model: Built, on any device.

    Raises:
        PluginError: Its layers are not numbered from 0, each number once.
    """
    kinds: dict[AttentionNeed, list[int]] = {}
    for index, layer in enumerate(layers_by_index(model)):
        kinds.setdefault(need_of(layer), []).append(index)
    return tuple(replace(kind, layer_indices=tuple(at)) for kind, at in kinds.items())


def layers_by_index(model: nn.Module) -> list[Attention]:
    """The model's attention layers; each one's place in the list is its ``layer_index``.

    Raises:
        PluginError: They are not numbered from 0, each number once.
    """
    layers = [module for module in model.modules() if isinstance(module, Attention)]
    layers.sort(key=lambda layer: layer.layer_index)
    found = [layer.layer_index for layer in layers]
    if found != list(range(len(layers))):
        cls = type(model)
        raise PluginError(
            f"{cls.__module__}.{cls.__qualname__} numbers its attention layers "
            f"{', '.join(map(str, found))}; they must count from 0, each number once"
        )
    return layers


def need_of(layer: Attention) -> AttentionNeed:
    """What one layer asks, without its index: equal for layers that are alike."""
    return AttentionNeed(
        layer_indices=(),
        num_heads=layer.num_heads,
        num_kv_heads=layer.num_kv_heads,
        head_dim=layer.head_dim,
        head_dim_v=layer.head_dim_v,
        sliding_window=layer.sliding_window,
        soft_cap=layer.soft_cap,
        has_sinks=layer.has_sinks,
        kv_lora_rank=layer.kv_lora_rank,
        rope_head_dim=layer.rope_head_dim,
    )
