"""Attention that can be inside a captured step: the reference one, as two kernels that read every
length where a device's would, when they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from dougong.contracts import (
    AttentionImpl,
    AttentionMetadataBuilder,
    AttentionRequest,
    CommonAttentionMetadata,
    GraphLevel,
    GraphSupport,
    KVCacheSpec,
    KVLayout,
    Support,
)
from dougong.reference import ReferenceAttentionBackend
from dougong.reference.attention import ReferenceAttentionImpl, ReferenceAttentionMetadata

_impls: list[ReferenceAttentionImpl] = []
"""A kernel takes numbers and tensors, so that a layer is passed as its number here."""


@torch.library.custom_op("dougong_tests::write_rows", mutates_args={"cache"})
def write_rows(rows: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
    """Leaves out rows of slot -1, however many there are in this step."""
    written = slots >= 0
    cache.view(-1, *cache.shape[2:])[slots[written].long()] = rows[written]


@torch.library.custom_op("dougong_tests::paged_attention", mutates_args={"out"})
def paged_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    starts: torch.Tensor,
    seq_lens: torch.Tensor,
    block_table: torch.Tensor,
    out: torch.Tensor,
    layer: int,
) -> None:
    """As `ReferenceAttentionImpl`, with the lengths that the tensors hold now."""
    metadata = ReferenceAttentionMetadata(
        starts.tolist(), seq_lens.tolist(), block_table.long(), k_cache.shape[1]
    )
    ReferenceAttentionImpl.forward(_impls[layer], q, q, q, (k_cache, v_cache), metadata, out)


class CapturableImpl(ReferenceAttentionImpl):
    """Each call is one kernel, or two."""

    def __init__(self, request: AttentionRequest, scale: float) -> None:
        super().__init__(request, scale)
        self._number = len(_impls)
        _impls.append(self)

    def write_kv(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        slot_mapping: torch.Tensor,
    ) -> None:
        for rows, cache in zip((k, v), kv_cache, strict=True):
            write_rows(rows, cache, slot_mapping)

    def forward(  # type: ignore[override]  # the metadata is another, as the contract allows
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        metadata: CommonAttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        lengths = (metadata.cu_seqlens_q, metadata.seq_lens, metadata.block_table)
        paged_attention(q, *kv_cache, *lengths, out, self._number)


class CapturableBuilder(AttentionMetadataBuilder):
    """The kernels read the core's own tensors, which stay where they are."""

    def build(self, common: CommonAttentionMetadata) -> CommonAttentionMetadata:
        return common


class CapturableBackend(ReferenceAttentionBackend):
    """The reference backend, in a graph too."""

    name = "graphs/attention"

    def supports(self, request: AttentionRequest) -> Support:
        return super().supports(replace(request, needs_graph=False))

    def make_impl(self, request: AttentionRequest, scale: float) -> AttentionImpl:
        return CapturableImpl(request, scale)

    def make_builder(
        self, spec: KVCacheSpec, layout: KVLayout, device: torch.device
    ) -> AttentionMetadataBuilder:
        return CapturableBuilder(spec, layout, device)

    def graph_support(self) -> GraphSupport:
        return GraphSupport(GraphLevel.FULL)
