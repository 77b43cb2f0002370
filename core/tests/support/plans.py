"""Rank plans without a planner: one attention backend, or pair, for every layer, and the op
implementations that a test names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

import torch
from torch import nn

from dougong.attention import load_backends, outline_attention
from dougong.checkpoint import read_config, resolve_reference
from dougong.contracts import (
    AttentionAssignment,
    AttentionBackend,
    AttentionRequest,
    KVCacheSpec,
    OpAssignment,
    OpPiece,
    Platform,
    RankPlan,
    Registration,
)
from dougong.contracts.rank_plan import NATIVE
from dougong.cpu.platform import CpuPlatform
from dougong.describe import AttentionNeed, OpSite
from dougong.models.registry import ModelRegistry
from dougong.ops.assignments import SAMPLER_PREFIX
from dougong.ops.outline import outline_ops
from dougong.sampling import Sampler

Implementations = Mapping[str, str | Sequence[OpPiece]]
"""Op key → what runs wherever the model has that op; native runs elsewhere."""


class PlanOptions(TypedDict, total=False):
    """What a test may choose.

    Attributes:
        dtype: Compute dtype; ``"float32"`` by default.
        kv_dtype: Of the cache; the compute dtype by default.
        block_size: Tokens per block; 16 by default.
        backend: Of every attention layer; ``"reference/torch"`` by default.
        decode_backend: The second of a pair; none by default.
        implementations: See `Implementations`; none by default.
        platform: Whose backends they are; the CPU by default.
        backends: In place of the platform's.
    """

    dtype: str
    kv_dtype: str
    block_size: int
    backend: str
    decode_backend: str | None
    implementations: Implementations
    platform: Platform
    backends: Mapping[str, AttentionBackend]


def plan_for_model(model: nn.Module, **options: Unpack[PlanOptions]) -> RankPlan:
    """A plan for a built model, wherever it was built, and a sampler."""
    backends = options.get("backends") or load_backends(options.get("platform", CpuPlatform()))
    sites = (*outline_ops(model), *outline_ops(Sampler(), SAMPLER_PREFIX))
    return RankPlan(
        block_size=options.get("block_size", 16),
        attention=tuple(_attention(need, backends, options) for need in outline_attention(model)),
        ops=tuple(_ops(sites, options.get("implementations", {}))),
    )


def plan_for_checkpoint(
    folder: str | Path,
    *,
    registrations: Iterable[Registration] = (),
    max_model_len: int | None = None,
    **options: Unpack[PlanOptions],
) -> RankPlan:
    """A plan for a checkpoint; its config alone is read.

    Args:
        folder: The checkpoint.
        registrations: For its architecture, where it is not a built-in one.
        max_model_len: As the engine's.
        options: See `PlanOptions`.
    """
    config = read_config(resolve_reference(str(folder)))
    cls = ModelRegistry(registrations).resolve(config["architectures"])
    with torch.device("meta"):
        model = cls(config, getattr(torch, options.get("dtype", "float32")), max_model_len)
    return plan_for_model(model, **options)


def _attention(
    need: AttentionNeed, backends: Mapping[str, AttentionBackend], options: PlanOptions
) -> AttentionAssignment:
    dtype, block_size = options.get("dtype", "float32"), options.get("block_size", 16)
    kv_dtype = options.get("kv_dtype", dtype)
    request = AttentionRequest(
        num_heads=need.num_heads,
        num_kv_heads=need.num_kv_heads,
        head_dim=need.head_dim,
        dtype=dtype,
        kv_dtype=kv_dtype,
        block_size=block_size,
        sliding_window=need.sliding_window,
        soft_cap=need.soft_cap,
    )
    spec = KVCacheSpec(
        num_kv_heads=need.num_kv_heads,
        head_dim=need.head_dim,
        dtype=kv_dtype,
        block_size=block_size,
        sliding_window=need.sliding_window,
    )
    name = options.get("backend", "reference/torch")
    return AttentionAssignment(
        layer_indices=need.layer_indices,
        request=request,
        backend=name,
        decode_backend=options.get("decode_backend"),
        layout=backends[name].kv_layout(spec),
    )


def _ops(sites: Iterable[OpSite], implementations: Implementations) -> Iterable[OpAssignment]:
    paths: dict[str, list[str]] = {}
    for site in sites:
        paths.setdefault(site.key, []).append(site.path)
    for key, at in paths.items():
        chosen = implementations.get(key, NATIVE)
        pieces = (OpPiece(chosen),) if isinstance(chosen, str) else tuple(chosen)
        yield OpAssignment(key=key, paths=tuple(at), pieces=pieces)
