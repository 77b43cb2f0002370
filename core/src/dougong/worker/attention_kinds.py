"""From the plan to a built model's attention layers, everything compared on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import nn

from dougong.attention import Attention, Classified, PairedBackend, layers_by_index, need_of
from dougong.contracts import (
    AttentionAssignment,
    AttentionBackend,
    AttentionRequest,
    KVCacheGroup,
    KVCacheSpec,
    KVLayout,
    PluginError,
    RankPlan,
)
from dougong.planner.attention_candidates import CacheTerms, request_of, spec_of


@dataclass(frozen=True, slots=True)
class AttentionKind:
    """Layers that are alike: one backend, or pair, and one KV cache group.

    Attributes:
        layers: By index.
        names: Of the backend, or of the prefill and the decode backend.
        backend: The instance, or the pair.
        request: What each layer asks.
        group: Of their caches.
        layout: Of one layer's cache.
    """

    layers: tuple[Attention, ...]
    names: tuple[str, ...]
    backend: AttentionBackend
    request: AttentionRequest
    group: KVCacheGroup
    layout: KVLayout


def planned_kinds(
    model: nn.Module,
    backends: Mapping[str, AttentionBackend],
    plan: RankPlan,
    classified: Classified,
) -> tuple[AttentionKind, ...]:
    """One per assignment, in the plan's order.

    Raises:
        PluginError: The plan and the model name different layers, or the same ones differently; a
            backend is not there, or answers with another layout than while planning.
    """
    layers = layers_by_index(model)
    _check_named_once(plan, len(layers))
    for one in plan.attention:
        assert one.request.block_size == plan.block_size, "the planner gives every group the same"
    return tuple(_kind(one, layers, backends, classified) for one in plan.attention)


def _kind(
    assignment: AttentionAssignment,
    layers: Sequence[Attention],
    backends: Mapping[str, AttentionBackend],
    classified: Classified,
) -> AttentionKind:
    request = assignment.request
    mine = tuple(layers[index] for index in assignment.layer_indices)
    spec = _check_asked(mine, request)
    decode = assignment.decode_backend
    names = (assignment.backend,) if decode is None else (assignment.backend, decode)
    backend = _backend(names, backends, classified)
    _check_layout(backend, spec, assignment.layout)
    group = KVCacheGroup(spec, assignment.layer_indices)
    return AttentionKind(mine, names, backend, request, group, assignment.layout)


def _backend(
    names: Sequence[str], backends: Mapping[str, AttentionBackend], classified: Classified
) -> AttentionBackend:
    if absent := [name for name in names if name not in backends]:
        raise PluginError(
            f"the plan names attention backend {absent[0]!r}, and in this rank the platform has "
            f"{', '.join(backends) or 'none'}; get_attn_backends() must answer the same everywhere"
        )
    first, last = backends[names[0]], backends[names[-1]]
    return first if len(names) == 1 else PairedBackend(first, last, classified)


def _check_named_once(plan: RankPlan, num_layers: int) -> None:
    named = sorted(index for one in plan.attention for index in one.layer_indices)
    if named == list(range(num_layers)):
        return
    count, there = Counter(named), set(range(num_layers))
    problems = [
        f"{told} {', '.join(map(str, sorted(indices)))}"
        for told, indices in (
            ("leaves out", there - set(named)),
            ("names more than once", {index for index in named if count[index] > 1}),
            ("names, though it is not there,", set(named) - there),
        )
        if indices
    ]
    raise PluginError(
        f"the built model has {num_layers} attention layers, and the plan {'; '.join(problems)}; "
        "a model must have the same layers wherever it is built"
    )


def _check_asked(layers: Sequence[Attention], planned: AttentionRequest) -> KVCacheSpec:
    """What the layers store. The phase and capture are the planner's; all else must be what each
    layer asks."""
    assert planned.block_size is not None, "an assignment's is set"
    terms = CacheTerms(planned.dtype, planned.kv_dtype, planned.block_size)
    first = spec_of(need_of(layers[0]), terms.kv_dtype, terms.block_size)
    for layer in layers:
        need = need_of(layer)
        asked = replace(request_of(need, terms, planned.phase), needs_graph=planned.needs_graph)
        stored = spec_of(need, terms.kv_dtype, terms.block_size)
        if stored != first:
            raise PluginError(
                f"attention layers {layers[0].layer_index} and {layer.layer_index} were planned as "
                f"one kind, and the built model stores {first} and {stored} for them; a model must "
                "have the same layers wherever it is built"
            )
        if asked != planned:
            raise PluginError(
                f"attention layer {layer.layer_index} was planned as {planned}, and the built "
                f"model asks {asked}; a model must have the same layers wherever it is built"
            )
    return first


def _check_layout(backend: AttentionBackend, spec: KVCacheSpec, planned: KVLayout) -> None:
    answer = backend.kv_layout(spec)
    if answer != planned:
        raise PluginError(
            f"attention backend {backend.name!r} answers kv_layout() with another layout than "
            f"while planning: now {answer}, then {planned}; it must depend on the spec alone"
        )
    if spec.block_size not in planned.block_sizes:
        raise PluginError(
            f"the plan has blocks of {spec.block_size} tokens, and the layout {planned.name!r} of "
            f"attention backend {backend.name!r} takes {', '.join(map(str, planned.block_sizes))}"
        )
