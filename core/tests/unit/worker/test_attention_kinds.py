"""The plan held against what was built: every difference refused, with both sides."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from torch import nn

from dougong.attention import Attention, outline_attention
from dougong.contracts import (
    AttentionAssignment,
    AttentionBackend,
    KVCacheSpec,
    KVLayout,
    PluginError,
    RankPlan,
)
from dougong.planner.attention_candidates import CacheTerms, request_of, spec_of
from dougong.reference import ReferenceAttentionBackend
from dougong.worker.attention_kinds import planned_kinds
from tests.support.plans import plan_for_model

BACKENDS: dict[str, AttentionBackend] = {"reference/torch": ReferenceAttentionBackend()}


def model(*windows: int | None) -> nn.Module:
    return nn.ModuleList(
        Attention(index, 4, 2, 16, 0.25, sliding_window=window)
        for index, window in enumerate(windows)
    )


def planned(built: nn.Module) -> RankPlan:
    return plan_for_model(built, backends=BACKENDS)


def test_each_assignment_is_a_kind_with_its_layers_and_its_group() -> None:
    built = model(None, 8, None)
    first, second = planned_kinds(built, BACKENDS, planned(built), nullcontext)
    assert [layer.layer_index for layer in first.layers] == [0, 2]
    assert first.group.layer_indices == (0, 2)
    assert (first.names, second.group.spec.sliding_window) == (("reference/torch",), 8)
    assert first.backend is BACKENDS["reference/torch"]
    assert first.layout == first.backend.kv_layout(first.group.spec)


CHANGES: dict[str, tuple[Callable[[RankPlan], RankPlan], str]] = {
    "a layer is missing": (
        lambda plan: replace(plan, attention=plan.attention[:1]),
        "2 attention layers, and the plan leaves out 1",
    ),
    "a layer is named twice": (
        lambda plan: replace(plan, attention=(*plan.attention, plan.attention[0])),
        "names more than once 0",
    ),
    "a layer is not there": (
        lambda plan: _with_first(plan, layer_indices=(0, 5)),
        "names, though it is not there, 5",
    ),
    "a backend is not there": (
        lambda plan: _with_first(plan, backend="acme/gone"),
        "names attention backend 'acme/gone', and in this rank the platform has reference/torch",
    ),
    "a pair's second is not there": (
        lambda plan: _with_first(plan, decode_backend="acme/gone"),
        "names attention backend 'acme/gone'",
    ),
    "the layer asks something else": (
        lambda plan: _with_first(plan, request=replace(plan.attention[0].request, head_dim=32)),
        "attention layer 0 was planned as .*head_dim=32.*model asks .*head_dim=16",
    ),
    "the layout is another": (
        lambda plan: _with_first(plan, layout=replace(plan.attention[0].layout, name="older")),
        "'reference/torch' answers kv_layout.. with another layout .*now .*'tokens.*then .*'older'",
    ),
}


def _with_first(plan: RankPlan, **changes: Any) -> RankPlan:
    first, *others = plan.attention
    return replace(plan, attention=(replace(first, **changes), *others))


@pytest.mark.parametrize(("change", "message"), CHANGES.values(), ids=CHANGES)
def test_a_plan_that_does_not_fit_the_rank_is_refused(
    change: Callable[[RankPlan], RankPlan], message: str
) -> None:
    built = model(None, 8)
    with pytest.raises(PluginError, match=message):
        planned_kinds(built, BACKENDS, change(planned(built)), nullcontext)


def test_a_block_size_that_the_layout_does_not_take_is_refused() -> None:
    class Large(ReferenceAttentionBackend):
        def kv_layout(self, spec: KVCacheSpec) -> KVLayout:
            return replace(super().kv_layout(spec), block_sizes=(64,))

    backends: dict[str, AttentionBackend] = {"reference/torch": Large()}
    built = model(None)
    plan = plan_for_model(built, backends=backends)
    with pytest.raises(PluginError, match=r"blocks of 16 tokens, and the layout .* takes 64"):
        planned_kinds(built, backends, plan, nullcontext)


class Latent(Attention):
    kv_lora_rank = 32
    rope_head_dim = 8


class Narrow(Attention):
    head_dim_v = 8


@pytest.mark.parametrize("cls", [Latent, Narrow])
def test_the_worker_stores_what_the_planner_planned_for(cls: type[Attention]) -> None:
    built = cls(0, 4, 2, 16, 0.25)
    (need,) = outline_attention(built)
    terms = CacheTerms("float32", "float32", 16)
    spec = spec_of(need, "float32", 16)
    assignment = AttentionAssignment(
        layer_indices=(0,),
        request=request_of(need, terms),
        backend="reference/torch",
        layout=BACKENDS["reference/torch"].kv_layout(spec),
    )
    plan = RankPlan(block_size=16, attention=(assignment,), ops=())
    (kind,) = planned_kinds(built, BACKENDS, plan, nullcontext)
    assert kind.group.spec == spec


def test_layers_that_store_differently_are_not_one_kind() -> None:
    built = nn.ModuleList([Attention(0, 4, 2, 16, 0.25), Narrow(1, 4, 2, 16, 0.25)])
    plan = planned(model(None, None))
    with pytest.raises(PluginError, match="layers 0 and 1 were planned as one kind"):
        planned_kinds(built, BACKENDS, plan, nullcontext)
