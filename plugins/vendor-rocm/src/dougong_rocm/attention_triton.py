"""Attention by the portable Triton kernels, on every family they were compiled for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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
    KVCacheSpec,
    KVLayout,
)
from dougong_triton_kernels import attention
from dougong_triton_kernels import kv_cache as cache_kernels

from dougong_rocm.kernels_triton import FEATURE, TRITON
from dougong_rocm.kv_layout import paged_layout

_BLOCK_SIZES = (16, 32, 64, 128)
_TOKENS_PER_SPLIT = 512  # not measured: below it a part's own work is less than joining the parts
_PROGRAMS = 256  # not measured: about the compute units of a large GPU
_MOST_SPLITS = 16


class TritonMetadataBuilder(AttentionMetadataBuilder):
    """The kernels read what is there."""

    def build(self, common: CommonAttentionMetadata) -> CommonAttentionMetadata:
        """Without sequences of padding."""
        num_reqs = common.num_reqs
        return replace(
            common,
            cu_seqlens_q=common.cu_seqlens_q[: num_reqs + 1],
            seq_lens=common.seq_lens[:num_reqs],
            block_table=common.block_table[:num_reqs],
        )


class TritonAttentionBackend(AttentionBackend):
    """Paged decode, and paged attention of steps that hold prefill."""

    name = "rocm/triton"
    library = TRITON
    features = frozenset({FEATURE})
    limits = AttentionLimits(
        dtypes=frozenset({"bfloat16", "float16", "float32"}),
        head_size_multiple=8,
        max_head_size=256,
        block_sizes=_BLOCK_SIZES,
        sliding_window=True,
        soft_cap=True,
    )

    def kv_layout(self, spec: KVCacheSpec) -> KVLayout:
        """As all backends of this wheel."""
        return paged_layout(spec, _BLOCK_SIZES)

    def make_impl(self, request: AttentionRequest, scale: float) -> AttentionImpl:
        """One layer; refused where `supports` says no."""
        self.check_supported(request)
        return TritonAttentionImpl(request, scale)

    def make_builder(
        self, spec: KVCacheSpec, layout: KVLayout, device: torch.device
    ) -> AttentionMetadataBuilder:
        """One per group of layers that are alike."""
        return TritonMetadataBuilder(spec, layout, device)

    def graph_support(self) -> GraphSupport:
        """Everything but attention: the shape of a launch follows from the step's lengths."""
        return GraphSupport(GraphLevel.PIECEWISE)


class TritonAttentionImpl(AttentionImpl):
    """One layer."""

    def write_kv(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        slot_mapping: torch.Tensor,
    ) -> None:
        """See `AttentionImpl`; a slot below 0 is skipped by the kernel."""
        key_cache, value_cache = kv_cache
        cache_kernels.write_kv(k, v, key_cache, value_cache, slot_mapping)

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        metadata: CommonAttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        """See `AttentionImpl`; keys and values are read from the cache."""
        key_cache, value_cache = kv_cache
        is_decode = metadata.max_query_len == 1 and metadata.num_tokens == metadata.num_reqs
        if is_decode:
            attention.paged_decode(
                q[: metadata.num_reqs],  # rows of padding may follow
                key_cache,
                value_cache,
                metadata.block_table,
                metadata.seq_lens,
                self.scale,
                out=out[: metadata.num_reqs],
                sliding_window=self.request.sliding_window,
                soft_cap=self.request.soft_cap,
                num_splits=_num_splits(metadata, self.request.num_kv_heads),
            )
            return
        attention.paged_attention(
            q,
            key_cache,
            value_cache,
            metadata.block_table,
            metadata.seq_lens,
            metadata.cu_seqlens_q,
            metadata.max_query_len,
            self.scale,
            out=out,
            sliding_window=self.request.sliding_window,
            soft_cap=self.request.soft_cap,
        )


def _num_splits(step: CommonAttentionMetadata, num_kv_heads: int) -> int:
    """Parts of each sequence that are attended to apart: more where few sequences are long."""
    by_length = step.max_seq_len // _TOKENS_PER_SPLIT
    by_programs = _PROGRAMS // max(1, step.num_reqs * num_kv_heads)
    return max(1, min(_MOST_SPLITS, by_length, by_programs))
