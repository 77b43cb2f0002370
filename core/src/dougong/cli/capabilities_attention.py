"""Attention backends as a capability file has them: they are asked for layers of many sizes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

from dougong.contracts import (
    AttentionBackend,
    AttentionLimits,
    AttentionPhase,
    AttentionRequest,
    Claims,
    KVCacheSpec,
    KVLayout,
)
from dougong.describe import DeclaredAttention, DeclaredLayout, fit_layout
from dougong.errors import PluginError
from dougong.planner.backend_queries import BackendQueries

_KV_HEADS = (8, 2)
_QUERIES_PER_KV_HEAD = 4
_HEAD_SIZES = (128, 64, 256, 96, 80)
_MOST_HEAD_SIZES = 3
_LATENT_SIZES = ((512, 64), (256, 32))  # of a latent row: compressed part, rotated part
_STEPS = (256, 8192)  # tokens of the steps between which workspace is taken to grow evenly


def declare_attention(
    backends: Mapping[str, AttentionBackend], claims: Claims, platform: str
) -> dict[str, DeclaredAttention]:
    """Every backend as a file has it.

    Args:
        backends: By name, preferred first.
        claims: Of the device.
        platform: Its name, for faults.

    Raises:
        PluginError: A backend raised, or answered something else than it had promised.
    """
    queries = BackendQueries(backends, lambda request: None, platform)
    return {name: _declared(queries, name, backend, claims) for name, backend in backends.items()}


@dataclass(frozen=True, slots=True)
class _Layer:
    """What is asked of a backend, and what such a layer stores."""

    request: AttentionRequest
    spec: KVCacheSpec


def _declared(
    queries: BackendQueries, name: str, backend: AttentionBackend, claims: Claims
) -> DeclaredAttention:
    limits = backend.limits
    if limits is None:
        return DeclaredAttention(
            library=backend.library,
            features=backend.features,
            graph=queries.graph_support(name),
        )
    layers = [one for one in _layers(limits, claims) if _is_served(queries, name, one)]
    base, per_token = _workspace(queries, name, layers[0]) if layers else (0, 0)
    return DeclaredAttention(
        limits=limits,
        has_own_checks=type(backend).supports is not AttentionBackend.supports,
        library=backend.library,
        features=backend.features,
        layouts=_layouts(queries, name, layers),
        workspace_bytes=base,
        workspace_bytes_per_token=per_token,
        graph=queries.graph_support(name),
    )


def _layers(limits: AttentionLimits, claims: Claims) -> Iterator[_Layer]:
    """Layers within the limits, the commonest sizes first; of each dtype that a cache can have."""
    for dtype in claims.dtypes:
        kv_dtypes = limits.kv_dtypes or {dtype}
        for kv_dtype in claims.kv_dtypes:
            if dtype in limits.dtypes and kv_dtype in kv_dtypes:
                for block_size in limits.block_sizes or claims.kv_block_sizes:
                    sizes = _latent_layers if limits.mla else _plain_layers
                    for request, spec in sizes(limits, dtype, kv_dtype, block_size):
                        yield _Layer(request, spec)


def _plain_layers(
    limits: AttentionLimits, dtype: str, kv_dtype: str, block_size: int
) -> Iterator[tuple[AttentionRequest, KVCacheSpec]]:
    for num_kv_heads, head_dim in product(_KV_HEADS, _head_sizes(limits)):
        request = AttentionRequest(
            num_heads=num_kv_heads * _QUERIES_PER_KV_HEAD,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            dtype=dtype,
            kv_dtype=kv_dtype,
            block_size=block_size,
        )
        yield (
            request,
            KVCacheSpec(
                num_kv_heads=num_kv_heads, head_dim=head_dim, dtype=kv_dtype, block_size=block_size
            ),
        )


def _head_sizes(limits: AttentionLimits) -> list[int]:
    multiple, most = limits.head_size_multiple, limits.max_head_size
    wanted = sorted(limits.head_sizes, reverse=True) or (*_HEAD_SIZES, multiple, 2 * multiple)
    fitting = [size for size in wanted if size % multiple == 0 and (most is None or size <= most)]
    return fitting[:_MOST_HEAD_SIZES]


def _latent_layers(
    limits: AttentionLimits, dtype: str, kv_dtype: str, block_size: int
) -> Iterator[tuple[AttentionRequest, KVCacheSpec]]:
    for (rank, rope), head_dim in product(_LATENT_SIZES, _head_sizes(limits)):
        request = AttentionRequest(
            num_heads=_KV_HEADS[0] * _QUERIES_PER_KV_HEAD,
            num_kv_heads=1,
            head_dim=head_dim,
            dtype=dtype,
            kv_dtype=kv_dtype,
            block_size=block_size,
            is_mla=True,
            kv_lora_rank=rank,
            rope_head_dim=rope,
        )
        yield (
            request,
            KVCacheSpec(
                num_kv_heads=1,
                head_dim=rank + rope,
                head_dim_v=rank,
                dtype=kv_dtype,
                block_size=block_size,
            ),
        )


def _is_served(queries: BackendQueries, name: str, layer: _Layer) -> bool:
    """In any phase: layouts are asked for of no other layers."""
    return any(
        queries.supports(name, replace(layer.request, phase=phase)) for phase in AttentionPhase
    )


def _layouts(
    queries: BackendQueries, name: str, layers: list[_Layer]
) -> tuple[DeclaredLayout, ...]:
    """One for each dtype of the cache; dtypes that differ in nothing else together."""
    specs: dict[str, list[KVCacheSpec]] = {}
    for layer in layers:
        specs.setdefault(layer.spec.dtype, []).append(layer.spec)
    found: list[DeclaredLayout] = []
    for dtype, of_dtype in specs.items():
        examples = [(spec, queries.kv_layout(name, spec)) for spec in of_dtype]
        layout = fit_layout([*examples, *_unusual(queries, name, of_dtype[0])])
        layout = layout or fit_layout(examples)
        if layout is None:
            continue
        for index, other in enumerate(found):
            if replace(other, dtypes=()) == replace(layout, dtypes=()):
                found[index] = replace(other, dtypes=(*other.dtypes, dtype))
                break
        else:
            found.append(layout)
    return tuple(found)


def _unusual(
    queries: BackendQueries, name: str, spec: KVCacheSpec
) -> list[tuple[KVCacheSpec, KVLayout]]:
    """Layers with smaller heads of V, or with blocks that nobody claims: their axes differ where
    those of usual ones are alike. A backend that does not take them may raise."""
    unusual = (
        replace(spec, head_dim_v=max(1, spec.head_dim // 2)),
        replace(spec, block_size=2 * spec.block_size),
    )
    found = []
    for one in unusual:
        with contextlib.suppress(PluginError):
            found.append((one, queries.kv_layout(name, one)))
    return found


def _workspace(queries: BackendQueries, name: str, layer: _Layer) -> tuple[int, int]:
    """Bytes whatever the step, and bytes for each of its tokens; never less than was answered."""
    few, many = (queries.workspace_bytes(name, layer.request, tokens) for tokens in _STEPS)
    per_token = max(0, -(-(many - few) // (_STEPS[1] - _STEPS[0])))
    return max(0, few - per_token * _STEPS[0]), per_token
