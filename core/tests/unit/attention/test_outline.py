"""Attention layers as planning sees them: kinds, each with its layers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dougong.attention import Attention, outline_attention
from dougong.contracts import PluginError
from dougong.describe import AttentionNeed


def model(*windows: int | None, first: int = 0) -> nn.Module:
    return nn.ModuleList(
        Attention(index, 4, 2, 16, 0.25, sliding_window=window)
        for index, window in enumerate(windows, first)
    )


def test_layers_that_are_alike_are_one_kind_in_the_models_order() -> None:
    kinds = outline_attention(model(8, None, 8, None))
    assert [(kind.layer_indices, kind.sliding_window) for kind in kinds] == [
        ((0, 2), 8),
        ((1, 3), None),
    ]
    assert kinds[0] == AttentionNeed(
        layer_indices=(0, 2), num_heads=4, num_kv_heads=2, head_dim=16, sliding_window=8
    )


class Latent(Attention):
    kv_lora_rank = 512
    rope_head_dim = 64
    head_dim_v = 8
    has_sinks = True


def test_what_a_derived_layer_says_of_itself_is_there() -> None:
    built = nn.ModuleList([Attention(0, 4, 2, 16, 0.25), Latent(1, 4, 2, 16, 0.25)])
    plain, latent = outline_attention(built)
    assert (plain.is_mla, plain.has_sinks, plain.head_dim_v) == (False, False, None)
    assert latent == AttentionNeed(
        layer_indices=(1,),
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        head_dim_v=8,
        has_sinks=True,
        kv_lora_rank=512,
        rope_head_dim=64,
    )


def test_layers_are_taken_by_index_however_the_model_holds_them() -> None:
    turned = nn.ModuleList(reversed(list(model(8, None).children())))
    assert [kind.layer_indices for kind in outline_attention(turned)] == [(0,), (1,)]


def test_a_model_without_memory_is_outlined_alike() -> None:
    with torch.device("meta"):
        there = model(None, 4)
    assert outline_attention(there) == outline_attention(model(None, 4))
    assert outline_attention(nn.Linear(1, 1)) == ()


def twice(layer: nn.Module) -> nn.Module:
    return nn.ModuleList([layer, *model(None).children()])


@pytest.mark.parametrize("layers", [model(None, None, first=1), twice(model(None))])
def test_layers_that_do_not_count_from_0_are_the_models_fault(layers: nn.Module) -> None:
    with pytest.raises(PluginError, match="count from 0, each number once"):
        outline_attention(layers)
