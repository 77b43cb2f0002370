"""A model's attention layers: bound as planned, kinds are groups, everything compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from dougong.attention import Attention
from dougong.contracts import (
    AttentionBackend,
    AttentionImpl,
    AttentionRequest,
    ImplementationError,
    KVCacheConfig,
    KVCacheGroup,
    KVCacheSpec,
    KVLayout,
    OutOfDeviceMemory,
    RankPlan,
    UnsupportedError,
)
from dougong.reference import ReferenceAttentionBackend
from dougong.worker.attention_layers import AttentionLayers
from tests.support.plans import plan_for_model

CPU = torch.device("cpu")


class Named(ReferenceAttentionBackend):
    """The reference backend under another name, with parts that a test may replace."""

    def __init__(self, name: str, error: Exception | None = None, **layout_changes: Any) -> None:
        self.name = name
        self.layout_changes = layout_changes
        self._error = error

    def kv_layout(self, spec: KVCacheSpec) -> KVLayout:
        return replace(super().kv_layout(spec), **self.layout_changes)

    def make_impl(self, request: AttentionRequest, scale: float) -> AttentionImpl:
        if self._error is not None:
            raise self._error
        return super().make_impl(request, scale)


BACKENDS: dict[str, AttentionBackend] = {
    name: Named(name) for name in ("reference/torch", "acme/prefill", "acme/decode")
}


def model(*windows: int | None, head_dim: int = 16) -> nn.Module:
    return nn.ModuleList(
        Attention(index, 4, 2, head_dim, 0.25, sliding_window=window)
        for index, window in enumerate(windows)
    )


def layers_of(built: nn.Module) -> list[Attention]:
    return [module for module in built.modules() if isinstance(module, Attention)]


def planned(
    built: nn.Module, backend: str = "reference/torch", decode_backend: str | None = None
) -> RankPlan:
    return plan_for_model(built, backends=BACKENDS, backend=backend, decode_backend=decode_backend)


def bind(built: nn.Module, *backends: str) -> AttentionLayers:
    return AttentionLayers(built, BACKENDS, planned(built, *backends), CPU)


def test_layers_with_and_without_a_window_are_groups_of_their_own() -> None:
    layers = bind(model(None, 8, None, 8))
    assert [group.layer_indices for group, _ in layers.groups] == [(0, 2), (1, 3)]
    assert [group.spec.sliding_window for group, _ in layers.groups] == [None, 8]
    assert len(layers.make_builders()) == 2


def test_every_layer_gets_buffers_of_its_own_and_its_groups_index() -> None:
    built = model(None, 8)
    layers = bind(built)
    layers.allocate(KVCacheConfig(5, tuple(group for group, _ in layers.groups)))
    first, second = layers_of(built)
    assert (first.group_index, second.group_index) == (0, 1)
    assert [buffer.shape[0] for buffer in first.kv_cache] == [5, 5]
    assert first.kv_cache[0].data_ptr() != second.kv_cache[0].data_ptr()
    assert len(list(layers.buffers())) == 4
    layers.drop()
    assert first.kv_cache == ()


def test_what_the_plan_names_is_bound_and_counted() -> None:
    built = model(None, 8)
    plan = planned(built)
    first, second = plan.attention
    mixed = replace(
        plan,
        attention=(
            replace(first, backend="acme/prefill", decode_backend="acme/decode"),
            second,
        ),
    )
    layers = AttentionLayers(built, BACKENDS, mixed, CPU)
    assert layers.count_backends() == {"acme/prefill": 1, "acme/decode": 1, "reference/torch": 1}
    assert [layer.backends for layer in layers_of(built)] == [
        ("acme/prefill", "acme/decode"),
        ("reference/torch",),
    ]


def test_block_size_reserved_blocks_and_slots_are_the_plans() -> None:
    layout: dict[str, Any] = {"reserved_blocks": 2, "slot_dtype": "int32", "block_sizes": (64, 32)}
    backends: dict[str, AttentionBackend] = {"acme/fixed": Named("acme/fixed", **layout)}
    built = model(None)
    plan = plan_for_model(built, backends=backends, backend="acme/fixed", block_size=32)
    layers = AttentionLayers(built, backends, plan, CPU)
    assert layers.block_size == layers.groups[0][0].spec.block_size == 32
    assert layers.reserved_blocks == 2
    assert layers.groups[0][1].slot_dtype == "int32"


def _sized(layers: AttentionLayers, **spec: Any) -> KVCacheConfig:
    groups = (
        KVCacheGroup(replace(group.spec, **spec), group.layer_indices) for group, _ in layers.groups
    )
    return KVCacheConfig(4, tuple(groups))


def test_a_scheduler_with_another_block_size_is_refused() -> None:
    layers = bind(model(None, 8))
    with pytest.raises(UnsupportedError, match=r"sized with block_size 32, .* take 16"):
        layers.allocate(_sized(layers, block_size=32))
    with pytest.raises(UnsupportedError, match="sized for the groups"):
        layers.allocate(_sized(layers, num_kv_heads=1))
    with pytest.raises(UnsupportedError, match="sized for the groups"):
        layers.allocate(KVCacheConfig(4, (layers.groups[0][0],)))
    layers.allocate(_sized(layers))


def test_backends_that_cannot_make_their_part_are_named_together() -> None:
    backends: dict[str, AttentionBackend] = {
        name: Named(name, ValueError(f"no {name}")) for name in ("acme/a", "acme/b")
    }
    built = model(None, 8)
    plan = plan_for_model(built, backends=backends, backend="acme/a")
    first, second = plan.attention
    both = replace(plan, attention=(first, replace(second, backend="acme/b")))
    with pytest.raises(ImplementationError) as caught:
        AttentionLayers(built, backends, both, CPU)
    assert caught.value.failures == {
        "acme/a": "make_impl() raised ValueError: no acme/a",
        "acme/b": "make_impl() raised ValueError: no acme/b",
    }
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_device_that_is_full_is_no_backends_fault() -> None:
    backends: dict[str, AttentionBackend] = {"acme/a": Named("acme/a", OutOfDeviceMemory("full"))}
    built = model(None)
    plan = plan_for_model(built, backends=backends, backend="acme/a")
    with pytest.raises(OutOfDeviceMemory):
        AttentionLayers(built, backends, plan, CPU)


def test_watching_ends_with_its_block_and_leaves_everything_as_it_was() -> None:
    built = model(None, 8)
    layers = bind(built, "acme/prefill", "acme/decode")
    impls = [layer.impl for layer in layers_of(built)]
    builders = layers.make_builders()
    own = list(builders)
    with layers.watch_first_use(builders, lambda: None):
        assert all(one is not other for one, other in zip(builders, own, strict=True))
        assert [layer.impl for layer in layers_of(built)] != impls
        assert layers.count_backends() == {"acme/prefill": 2, "acme/decode": 2}
    assert builders == own
    assert [layer.impl for layer in layers_of(built)] == impls


def test_the_hungriest_backends_workspace_counts_and_a_pairs_is_the_sum() -> None:
    class Hungry(Named):
        def workspace_bytes(self, request: AttentionRequest, max_num_tokens: int) -> int:
            return max_num_tokens * (request.sliding_window or 1)

    backends: dict[str, AttentionBackend] = {name: Hungry(name) for name in ("a/a", "a/b")}
    built = model(None, 8)
    for decode, num_bytes in ((None, 80), ("a/b", 160)):
        plan = plan_for_model(built, backends=backends, backend="a/a", decode_backend=decode)
        assert AttentionLayers(built, backends, plan, CPU).workspace_bytes(10) == num_bytes
