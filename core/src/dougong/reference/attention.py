"""Paged attention in plain torch, for any device: the fallback and the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dougong.contracts import (
    AttentionBackend,
    AttentionImpl,
    AttentionLimits,
    AttentionMetadataBuilder,
    AttentionRequest,
    CommonAttentionMetadata,
    GraphLevel,
    GraphSupport,
    KVBuffer,
    KVCacheSpec,
    KVLayout,
)

_EIGHT_BIT = ("float8_e4m3fn", "float8_e5m2")


@dataclass(slots=True)
class ReferenceAttentionMetadata:
    """Host copies of what a loop over sequences needs.

    Attributes:
        starts: First query row of each sequence, and the end.
        seq_lens: Tokens with KV, per sequence.
        block_table: int64 on the device.
        block_size: Tokens per block.
    """

    starts: list[int]
    seq_lens: list[int]
    block_table: torch.Tensor
    block_size: int


class _Builder(AttentionMetadataBuilder):
    def build(self, common: CommonAttentionMetadata) -> ReferenceAttentionMetadata:
        return ReferenceAttentionMetadata(
            starts=common.cu_seqlens_q_cpu.tolist(),
            seq_lens=common.seq_lens_cpu.tolist(),
            block_table=common.block_table.long(),
            block_size=self.spec.block_size,
        )


class ReferenceAttentionImpl(AttentionImpl):
    """Gathers a sequence's blocks, then attends in float32.

    A cache of 8-bit floats holds keys and values without a scale, rounded to 4 (``float8_e4m3fn``)
    or 3 (``float8_e5m2``) significant bits; what is beyond the largest number is cut to it.
    """

    def write_kv(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        slot_mapping: torch.Tensor,
    ) -> None:
        """Rows of slot -1 write what another row writes, to its slot: leaving them out would take
        their number, and the host would wait for it."""
        is_written = slot_mapping >= 0
        own = torch.arange(slot_mapping.shape[0], device=slot_mapping.device)
        source = torch.where(is_written, own, is_written.int().argmax())
        slots = slot_mapping[source].long()
        has_slot = (slots >= 0).view(-1, 1, 1)  # nowhere, if all rows are padding
        slots = slots.clamp(min=0)
        for new, cache in zip((k, v), kv_cache, strict=True):
            flat = cache.view(-1, *cache.shape[2:])
            rows = torch.where(has_slot, new[source].float(), flat[slots].float())
            if cache.dtype.itemsize == 1:
                limits = torch.finfo(cache.dtype)
                rows = rows.clamp(limits.min, limits.max)
            flat[slots] = rows.to(cache.dtype)

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        metadata: ReferenceAttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        """One sequence at a time; ``k`` and ``v`` are read from the cache."""
        for index, seq_len in enumerate(metadata.seq_lens):
            start, end = metadata.starts[index], metadata.starts[index + 1]
            num_blocks = -(-seq_len // metadata.block_size)
            blocks = metadata.block_table[index, :num_blocks]
            keys, values = (cache[blocks].flatten(0, 1)[:seq_len].float() for cache in kv_cache)
            out[start:end] = self._attend(q[start:end].float(), keys, values).to(out.dtype)

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        num_queries, num_keys = q.shape[0], k.shape[0]
        repeats = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
        scores = torch.einsum("qhd,khd->hqk", q, k) * self.scale
        if (cap := self.request.soft_cap) is not None:
            scores = cap * torch.tanh(scores / cap)
        query_at = torch.arange(num_keys - num_queries, num_keys, device=q.device).unsqueeze(1)
        key_at = torch.arange(num_keys, device=q.device)
        hidden = key_at > query_at
        if (window := self.request.sliding_window) is not None:
            hidden |= key_at <= query_at - window
        scores = scores.masked_fill(hidden, -torch.inf)
        return torch.einsum("hqk,khd->qhd", scores.softmax(dim=-1), v)


class ReferenceAttentionBackend(AttentionBackend):
    """Serves every plain kind of layer on every torch device, slowly."""

    name = "reference/torch"
    limits = AttentionLimits(
        dtypes=frozenset({"float32", "bfloat16", "float16"}),
        kv_dtypes=frozenset({"float32", "bfloat16", "float16", *_EIGHT_BIT}),
        sliding_window=True,
        soft_cap=True,
    )

    def kv_layout(self, spec: KVCacheSpec) -> KVLayout:
        """K and V apart, tokens outermost in a block; any block size."""
        shape = (spec.block_size, spec.num_kv_heads)
        return KVLayout(
            name="tokens-heads-dim",
            buffers=(
                KVBuffer(name="k", block_shape=(*shape, spec.head_dim), dtype=spec.dtype),
                KVBuffer(
                    name="v",
                    block_shape=(*shape, spec.head_dim_v or spec.head_dim),
                    dtype=spec.dtype,
                ),
            ),
            block_sizes=(spec.block_size,),
        )

    def make_impl(self, request: AttentionRequest, scale: float) -> AttentionImpl:
        """One layer."""
        return ReferenceAttentionImpl(request, scale)

    def make_builder(
        self, spec: KVCacheSpec, layout: KVLayout, device: torch.device
    ) -> AttentionMetadataBuilder:
        """One group."""
        return _Builder(spec, layout, device)

    def graph_support(self) -> GraphSupport:
        """It loops over sequences on the host, so all else of a step may be captured."""
        return GraphSupport(GraphLevel.PIECEWISE)
