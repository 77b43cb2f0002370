"""A model's attention layers: kinds become groups, buffers follow the layout."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from dougong.attention import Attention
from dougong.contracts import (
    ConfigError,
    ConfigView,
    KVBuffer,
    KVCacheConfig,
    KVCacheSpec,
    KVLayout,
    PluginError,
)
from dougong.cpu.platform import CpuPlatform
from dougong.reference import ReferenceAttentionBackend
from dougong.worker.attention_layers import AttentionLayers, allocate_buffer

CPU = torch.device("cpu")


def model(*windows: int | None, head_dim: int = 16) -> nn.Module:
    return nn.ModuleList(
        Attention(index, 4, 2, head_dim, 0.25, sliding_window=window)
        for index, window in enumerate(windows)
    )


def view(**changes: object) -> ConfigView:
    values = {"model": "x", "dtype": "float32", "kv_cache_dtype": "float32", "block_size": 16}
    return ConfigView(**(values | changes))  # type: ignore[arg-type]


def test_layers_with_and_without_a_window_are_groups_of_their_own() -> None:
    layers = AttentionLayers(model(None, 8, None, 8), CpuPlatform(), view(), CPU)
    assert [group.layer_indices for group, _ in layers.groups] == [(0, 2), (1, 3)]
    assert [group.spec.sliding_window for group, _ in layers.groups] == [None, 8]
    assert len(layers.make_builders()) == 2


def test_every_layer_gets_buffers_of_its_own_and_its_groups_index() -> None:
    built = model(None, 8)
    layers = AttentionLayers(built, CpuPlatform(), view(), CPU)
    layers.allocate(KVCacheConfig(5, tuple(group for group, _ in layers.groups)))
    first, second = (module for module in built.modules() if isinstance(module, Attention))
    assert (first.group_index, second.group_index) == (0, 1)
    assert [buffer.shape[0] for buffer in first.kv_cache] == [5, 5]
    assert first.kv_cache[0].data_ptr() != second.kv_cache[0].data_ptr()
    layers.drop()
    assert first.kv_cache == ()


def test_backends_passed_over_are_told() -> None:
    layers = AttentionLayers(model(None, head_dim=24), CpuPlatform(), view(), CPU)
    assert layers.count_backends() == {"reference/torch": 1}
    assert any("cpu/native was passed over: head_dim=24" in note for note in layers.notes())


def test_an_explicit_backend_that_cannot_is_refused() -> None:
    with pytest.raises(ConfigError, match="head_dim=24"):
        AttentionLayers(
            model(None, head_dim=24), CpuPlatform(), view(attention_backend="cpu/native"), CPU
        )


class FixedSizes(ReferenceAttentionBackend):
    """Takes blocks of 64 alone, whatever the platform prefers."""

    name = "acme/fixed"

    def kv_layout(self, spec: KVCacheSpec) -> KVLayout:
        return replace(super().kv_layout(spec), block_sizes=(64,), reserved_blocks=2)


class FixedPlatform(CpuPlatform):
    """The CPU with that backend alone."""

    def get_attn_backends(self) -> dict[str, str]:
        return {"acme/fixed": f"{__name__}:FixedSizes"}


def test_a_block_size_nobody_asked_for_follows_the_layout() -> None:
    layers = AttentionLayers(model(None), FixedPlatform(), view(), CPU)
    assert layers.block_size == 64
    assert layers.groups[0][0].spec.block_size == 64
    assert layers.reserved_blocks == 2


def test_a_block_size_that_was_asked_for_is_kept_or_refused() -> None:
    asked = view(block_size=64, explicit=frozenset({"block_size"}))
    assert AttentionLayers(model(None), FixedPlatform(), asked, CPU).block_size == 64
    with pytest.raises(ConfigError, match=r"block_size=16 .* takes 64"):
        AttentionLayers(model(None), FixedPlatform(), view(explicit=frozenset({"block_size"})), CPU)


@pytest.mark.parametrize("alignment", [1, 64, 512, 4096])
def test_every_block_starts_at_a_multiple_of_the_alignment(alignment: int) -> None:
    buffer = KVBuffer(name="k", block_shape=(16, 2, 20), dtype="bfloat16")
    tensor = allocate_buffer(buffer, 5, CPU, alignment)
    assert tensor.shape == (5, 16, 2, 20)
    tensor.fill_(1.0)
    assert all(tensor[block].data_ptr() % alignment == 0 for block in range(5))
    assert tensor.sum() == tensor.numel()


def test_blocks_that_cannot_be_aligned_are_the_plugins_fault() -> None:
    buffer = KVBuffer(name="k", block_shape=(2, 16, 20), dtype="bfloat16", block_axis=1)
    with pytest.raises(PluginError, match="put the block axis outermost"):
        allocate_buffer(buffer, 5, CPU, 4096)


def test_a_buffer_lies_in_memory_as_its_stride_order_says() -> None:
    buffer = KVBuffer(
        name="k", block_shape=(2, 16, 8), dtype="float32", block_axis=1, stride_order=(2, 1, 0, 3)
    )
    tensor = allocate_buffer(buffer, 3, CPU)
    assert tensor.shape == (2, 3, 16, 8)
    assert tensor.stride() == (8, 16, 48, 1)
