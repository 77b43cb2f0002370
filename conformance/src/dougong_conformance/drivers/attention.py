"""Attention backends: asked, made, given a poisoned cache of their own layout, run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from dougong.attention.parts import make_builder, make_impl
from dougong.contracts import (
    AttentionImpl,
    AttentionMetadataBuilder,
    AttentionPhase,
    AttentionRequest,
    CommonAttentionMetadata,
    KVCacheSpec,
    KVLayout,
    UnsupportedError,
)

from dougong_conformance.drivers.facts import plain
from dougong_conformance.drivers.kv_memory import NAN, KVMemory, allocate
from dougong_conformance.drivers.placing import to_device
from dougong_conformance.drivers.tracing import CopyTrace
from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session

_GUARD = 2
"""Rows around ``out`` that nobody may write."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a backend with its cache.

    Attributes:
        impl: Computes.
        builder: Makes metadata.
        memory: Its cache.
        device: Where.
    """

    impl: AttentionImpl
    builder: AttentionMetadataBuilder
    memory: KVMemory
    device: torch.device


@procedure("attention.missing")
def missing(session: Session) -> dict[str, str]:
    """Backend → why it is not usable here: what the device does not claim, or the kernel library it
    calls; empty: it is usable."""
    report, platform = session.kernels, session.platform
    claimed = platform.claims(platform.facts(session.device_index).arch).features
    loaded = {entry.split()[0] for entry in report.loaded}
    found = {}
    for name, backend in session.backends.items():
        found[name] = ""
        if lacking := sorted(backend.features - claimed):
            found[name] = f"this device does not claim {', '.join(lacking)}"
        elif backend.library is not None and backend.library not in loaded:
            found[name] = report.missing.get(backend.library, "it was not loaded")
    return found


@procedure("attention.supports")
def supports(
    session: Session, *, backend: str, requests: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Answers of a backend, each with its reason."""
    found = session.backends[backend]
    return [plain(found.supports(request_of(one))) for one in requests]


@procedure("attention.layout")
def layout(session: Session, *, backend: str, request: dict[str, Any]) -> dict[str, Any]:
    """Fields of a backend's KV layout for one kind of layer."""
    answer: dict[str, Any] = plain(session.backends[backend].kv_layout(_spec(request_of(request))))
    return answer


@procedure("attention.workspace")
def workspace(
    session: Session, *, backend: str, request: dict[str, Any], num_tokens: list[int]
) -> list[Any]:
    """Bytes that a backend asks for beside the cache, per number of tokens."""
    asked = request_of(request)
    return [session.backends[backend].workspace_bytes(asked, count) for count in num_tokens]


@procedure("attention.latent")
def latent(session: Session, *, backend: str, request: dict[str, Any]) -> dict[str, Any]:
    """Whether a backend makes latent attention.

    Returns:
        ``"made"``: names of what it made has; ``"refused"``: the message of an
        ``UnsupportedError``.
    """
    try:
        impl = session.backends[backend].make_mla_impl(request_of(request), 0.125)
    except UnsupportedError as exc:
        return {"made": None, "refused": str(exc)}
    return {"made": [one for one in ("write_kv", "forward") if hasattr(impl, one)], "refused": ""}


@procedure("attention.run")
def run(
    session: Session,
    *,
    backend: str,
    request: dict[str, Any],
    scale: float,
    num_blocks: int,
    writes: list[dict[str, torch.Tensor]],
    steps: list[dict[str, Any]],
    is_split: bool = True,
    keeps_cache: bool = False,
    is_poisoned: bool = True,
) -> dict[str, Any]:
    """Write what came before into a poisoned cache, then run steps on it.

    Args:
        session: Of this process.
        backend: By name.
        request: Fields of ``AttentionRequest``, ``block_size`` set.
        scale: Of the layer.
        num_blocks: Of the cache.
        writes: ``k``, ``v`` and ``slots`` of what is only written.
        steps: Of ``kit.paged``; each is written and computed.
        is_split: Queries, keys and values are slices of one wider tensor.
        keeps_cache: Also hand over the cache before and after the last ``forward``.
        is_poisoned: Fill the cache with NaN first.

    Returns:
        ``"outs"``: per step ``out`` with its guard rows; ``"guard"``: how many on each side;
        ``"built"``: copies that the builder made, per step; ``"peak"``: bytes beside the arguments
        that the last ``forward`` took at its peak; with ``keeps_cache`` ``"before"``, ``"after"``.
    """
    layer = make_layer(
        session, backend, request, scale, num_blocks, fill=NAN if is_poisoned else None
    )
    found: dict[str, Any] = {"outs": [], "built": [], "guard": _GUARD, "peak": 0}
    with session.runtime.inference_mode():
        for one in writes:
            write(layer, one, is_split=is_split)
        for index, step in enumerate(steps):
            trace = CopyTrace(layer.device)
            common = _common(layer, step)
            session.runtime.synchronize()
            with trace:
                metadata = layer.builder.build(common)
            q, k, v = _split(step, layer.device, is_split=is_split)
            layer.impl.write_kv(k, v, layer.memory.buffers, common.slot_mapping)
            if keeps_cache and index == len(steps) - 1:
                session.runtime.synchronize()
                found["before"] = layer.memory.everything()
            out = _guarded(step["q"], layer.device)
            session.runtime.synchronize()
            session.runtime.reset_peak_memory()
            start = session.runtime.peak_memory_bytes()
            layer.impl.forward(q, k, v, layer.memory.buffers, metadata, out[_GUARD:-_GUARD])
            session.runtime.synchronize()
            found["peak"] = session.runtime.peak_memory_bytes() - start
            found["outs"].append(out.cpu())
            found["built"].append(trace.counts())
    if keeps_cache:
        found["after"] = layer.memory.everything()
    return found


def make_layer(
    session: Session,
    backend: str,
    request: Mapping[str, Any],
    scale: float,
    num_blocks: int,
    *,
    fill: int | None = NAN,
) -> Layer:
    """One layer as the worker makes it, on a cache of its own."""
    chosen, asked, device = session.backends[backend], request_of(request), session.device
    spec = _spec(asked)
    answer = chosen.kv_layout(spec)
    with session.runtime.inference_mode():
        memory = allocate(answer, num_blocks, device, fill=fill)
        impl = make_impl(chosen, asked, scale)
        builder = make_builder(chosen, spec, answer, device)
    return Layer(impl, builder, memory, device)


def write(layer: Layer, one: Mapping[str, torch.Tensor], *, is_split: bool) -> None:
    """Keys and values of some tokens into their slots."""
    both = {"q": one["k"], "k": one["k"], "v": one["v"]}
    _, k, v = _split(both, layer.device, is_split=is_split)
    slots = to_device(one["slots"].to(_slot_dtype(layer.memory.layout)), layer.device)
    layer.impl.write_kv(k, v, layer.memory.buffers, slots)


def request_of(fields: Mapping[str, Any]) -> AttentionRequest:
    """The request that plain data says."""
    kept = dict(fields)
    kept["phase"] = AttentionPhase(kept.get("phase", "mixed"))
    return AttentionRequest(**kept)


def _spec(request: AttentionRequest) -> KVCacheSpec:
    if request.block_size is None:
        raise ValueError("a layer's cache needs a block size")
    return KVCacheSpec(
        num_kv_heads=request.num_kv_heads,
        head_dim=request.head_dim,
        dtype=request.kv_dtype,
        block_size=request.block_size,
        sliding_window=request.sliding_window,
    )


def _slot_dtype(answer: KVLayout) -> torch.dtype:
    found: torch.dtype = getattr(torch, answer.slot_dtype)
    return found


def _common(layer: Layer, step: Mapping[str, Any]) -> CommonAttentionMetadata:
    device = layer.device
    return CommonAttentionMetadata(
        num_reqs=step["num_reqs"],
        num_tokens=step["num_tokens"],
        max_query_len=step["max_query_len"],
        max_seq_len=step["max_seq_len"],
        cu_seqlens_q=to_device(step["cu_seqlens_q"], device),
        cu_seqlens_q_cpu=step["cu_seqlens_q"].clone(),
        seq_lens=to_device(step["seq_lens"], device),
        seq_lens_cpu=step["seq_lens"].clone(),
        block_table=to_device(step["block_table"], device),
        slot_mapping=to_device(step["slots"].to(_slot_dtype(layer.memory.layout)), device),
    )


def _split(
    step: Mapping[str, torch.Tensor], device: torch.device, *, is_split: bool
) -> Sequence[torch.Tensor]:
    """Queries, keys and values: each alone, or as one projection gives them."""
    parts = [step[name] for name in ("q", "k", "v")]
    if not is_split:
        return [to_device(one, device) for one in parts]
    joined = to_device(torch.cat(parts, dim=1), device)
    return joined.split_with_sizes([one.shape[1] for one in parts], dim=1)


def _guarded(q: torch.Tensor, device: torch.device) -> torch.Tensor:
    shape = (q.shape[0] + 2 * _GUARD, *q.shape[1:])
    return to_device(torch.full(shape, torch.nan, dtype=q.dtype), device)
