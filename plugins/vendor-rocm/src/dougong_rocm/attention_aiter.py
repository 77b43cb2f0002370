"""Attention by AITER: its compiled kernels for large blocks, its Triton kernel for small ones.

Both read the same cache, which AITER's ``reshape_and_cache_flash`` writes.

The compiled kernel is called as ``mha_varlen_fwd`` and not by AITER's public
``flash_attn_varlen_func``: for bfloat16 and heads of 128 elements that one takes an assembly kernel
which never looks at the block table, and reads the cache as if it were one long sequence.
"""

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
    KVCacheSpec,
    KVLayout,
)

from dougong_rocm.kernels_aiter import FEATURE, HALVES
from dougong_rocm.kv_layout import paged_layout
from dougong_rocm.library import AITER, PAGED_ATTENTION, library_of

_FLOAT32_BYTES = 4
_UNSCALED = "auto"  # of a cache that has the dtype of keys and values


@dataclass(slots=True)
class AiterStep:
    """What layers of one group share in a step; rows of padding are left out.

    Attributes:
        max_query_len: Of one sequence.
        max_seq_len: Of one sequence.
        cu_seqlens_q: int32 ``[num_reqs + 1]`` on the device.
        cu_seqlens_k: int32 ``[num_reqs + 1]`` on the device: tokens with KV, summed up.
        seq_lens: int32 ``[num_reqs]`` on the device.
        block_table: int32 ``[num_reqs, max_blocks]`` on the device.
    """

    max_query_len: int
    max_seq_len: int
    cu_seqlens_q: torch.Tensor
    cu_seqlens_k: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor


class AiterMetadataBuilder(AttentionMetadataBuilder):
    """Sums lengths up on the device; the host waits for nothing."""

    def build(self, common: CommonAttentionMetadata) -> AiterStep:
        """One small sum per step and group."""
        seq_lens = common.seq_lens[: common.num_reqs]
        ends = seq_lens.cumsum(0, dtype=torch.int32)
        return AiterStep(
            max_query_len=common.max_query_len,
            max_seq_len=common.max_seq_len,
            cu_seqlens_q=common.cu_seqlens_q[: common.num_reqs + 1],
            cu_seqlens_k=torch.cat((ends.new_zeros(1), ends)),
            seq_lens=seq_lens,
            block_table=common.block_table[: common.num_reqs],
        )


class _AiterBackend(AttentionBackend):
    """What both have in common."""

    features = frozenset({FEATURE})
    _block_sizes: tuple[int, ...]  # preferred first

    def kv_layout(self, spec: KVCacheSpec) -> KVLayout:
        """As all backends of this wheel."""
        return paged_layout(spec, self._block_sizes)

    def make_builder(
        self, spec: KVCacheSpec, layout: KVLayout, device: torch.device
    ) -> AttentionMetadataBuilder:
        """One per group of layers that are alike."""
        return AiterMetadataBuilder(spec, layout, device)

    def graph_support(self) -> GraphSupport:
        """Everything but attention: lengths that the kernels take from the host are the step's."""
        return GraphSupport(GraphLevel.PIECEWISE)


class _AiterImpl(AttentionImpl):
    """One layer's cache."""

    def __init__(self, request: AttentionRequest, scale: float) -> None:
        super().__init__(request, scale)
        self._window = -1 if request.sliding_window is None else request.sliding_window - 1
        self._one: torch.Tensor | None = None

    def write_kv(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        slot_mapping: torch.Tensor,
    ) -> None:
        """See `AttentionImpl`. Slot -1 is skipped by the kernel, which knows one stride of tokens
        and takes heads and elements as contiguous."""
        key_cache, value_cache = kv_cache
        if self._one is None:  # a scale that a cache in the dtype of keys does not use
            self._one = torch.ones(1, dtype=torch.float32, device=k.device)
        torch.ops.aiter.reshape_and_cache_flash(
            _rows(k),
            _rows(v),
            key_cache,
            value_cache,
            slot_mapping,
            kv_cache_dtype=_UNSCALED,
            k_scale=self._one,
            v_scale=self._one,
        )


def _rows(heads: torch.Tensor) -> torch.Tensor:
    """Tokens may be apart; what one token has must not."""
    num_heads, head_dim = heads.shape[1:]
    is_packed = heads.stride(2) == 1 and (num_heads == 1 or heads.stride(1) == head_dim)
    return heads if is_packed else heads.contiguous()


class AiterAttentionBackend(_AiterBackend):
    """AITER's compiled kernels over a paged cache: prefill, decode and steps that mix them."""

    name = "rocm/aiter"
    library = library_of(PAGED_ATTENTION)
    _block_sizes = (128, 256)
    limits = AttentionLimits(
        dtypes=HALVES,
        head_size_multiple=8,
        max_head_size=256,
        block_sizes=_block_sizes,  # a block is a multiple of 128 tokens, or the kernel refuses
        sliding_window=True,
        # no cap on scores: what AITER builds for a paged cache has none
    )

    def make_impl(self, request: AttentionRequest, scale: float) -> AttentionImpl:
        """One layer; refused where `supports` says no."""
        self.check_supported(request)
        return AiterAttentionImpl(request, scale)

    def workspace_bytes(self, request: AttentionRequest, max_num_tokens: int) -> int:
        """The kernel sums up in float32 beside the output, one part of each sequence: it takes more
        parts only where a head is wider than a block of its work, which none is."""
        return request.num_heads * max_num_tokens * (request.head_dim + 1) * _FLOAT32_BYTES


class AiterAttentionImpl(_AiterImpl):
    """One layer."""

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        metadata: AiterStep,
        out: torch.Tensor,
    ) -> None:
        """See `AttentionImpl`; keys and values are read from the cache, causal from the end."""
        key_cache, value_cache = kv_cache
        torch.ops.aiter.mha_varlen_fwd(
            q,
            key_cache,
            value_cache,
            metadata.cu_seqlens_q,
            metadata.cu_seqlens_k,
            max_seqlen_q=metadata.max_query_len,
            max_seqlen_k=metadata.max_seq_len,
            min_seqlen_q=0,
            dropout_p=0.0,
            softmax_scale=self.scale,
            logits_soft_cap=0.0,
            zero_tensors=False,
            is_causal=True,
            window_size_left=self._window,
            window_size_right=0,
            return_softmax_lse=False,
            return_dropout_randval=False,
            out=out,
            block_table=metadata.block_table,
        )


class AiterUnifiedBackend(_AiterBackend):
    """AITER's Triton kernel over a paged cache of small blocks."""

    name = "rocm/aiter-unified"
    library = library_of("unified_attention")
    _block_sizes = (64, 32, 16)
    limits = AttentionLimits(
        dtypes=HALVES,
        head_size_multiple=8,
        max_head_size=256,
        block_sizes=_block_sizes,
        sliding_window=True,
        soft_cap=True,
    )

    def make_impl(self, request: AttentionRequest, scale: float) -> AttentionImpl:
        """One layer; refused where `supports` says no."""
        self.check_supported(request)
        return AiterUnifiedImpl(request, scale)


class AiterUnifiedImpl(_AiterImpl):
    """One layer."""

    def __init__(self, request: AttentionRequest, scale: float) -> None:
        super().__init__(request, scale)
        self._soft_cap = float(request.soft_cap or 0.0)

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        metadata: AiterStep,
        out: torch.Tensor,
    ) -> None:
        """See `AttentionImpl`; keys and values are read from the cache."""
        key_cache, value_cache = kv_cache
        AITER.unified_attention(
            q,
            key_cache,
            value_cache,
            out,
            cu_seqlens_q=metadata.cu_seqlens_q,
            max_seqlen_q=metadata.max_query_len,
            seqused_k=metadata.seq_lens,
            max_seqlen_k=metadata.max_seq_len,
            softmax_scale=self.scale,
            causal=True,
            window_size=(self._window, 0),
            block_table=metadata.block_table,
            softcap=self._soft_cap,
            q_descale=None,
            k_descale=None,
            v_descale=None,
        )
