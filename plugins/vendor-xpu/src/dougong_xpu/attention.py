"""Paged attention of ``vllm-xpu-kernels``: its flash kernels, its cache, its way to write it.

Facts that are not in the signatures:

* Tokens are outermost in a block: ``[blocks, block_size, kv_heads, head_dim]``, K and V apart.
* `varlen_fwd` takes half precision only, and a cap on scores without using it; so caps are refused.
* The window counts keys to the left of the query's own: one less than a window of the core.
* In blocks a sequence is as long as ``seqused_k`` says; ``cu_seqlens_k`` is asked for, not read.
* `reshape_and_cache_flash` leaves out negative slots, and reads 64-bit ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from dougong.contracts import (
    AttentionBackend,
    AttentionImpl,
    AttentionLimits,
    AttentionMetadataBuilder,
    AttentionRequest,
    CommonAttentionMetadata,
    KVBuffer,
    KVCacheSpec,
    KVLayout,
    Support,
)

from dougong_xpu.block_table import own_blocks
from dougong_xpu.compiled import BLOCK_SIZES, PREFILL, missing_kernels
from dougong_xpu.providers import KERNELS


class XpuFlashBackend(AttentionBackend):
    """Answers questions while planning, without torch's device; then makes the parts that run."""

    name = "xpu/flash"
    library = KERNELS
    features = frozenset({"xpu.xe2_kernels"})
    limits = AttentionLimits(
        dtypes=frozenset({"bfloat16", "float16"}),
        head_sizes=PREFILL,
        block_sizes=BLOCK_SIZES,
        sliding_window=True,
    )

    def supports(self, request: AttentionRequest) -> Support:
        """Within the limits, and with kernels that the published wheel holds."""
        assert self.limits is not None
        stated = self.limits.check(request)
        # a layer beyond the limits has no kernel either, and its first reason is enough
        reasons = missing_kernels(request) if stated else iter((stated.reason,))
        first = next(reasons, "")
        return Support.no("; ".join(chain((first,), reasons))) if first else Support.yes()

    def kv_layout(self, spec: KVCacheSpec) -> KVLayout:
        """K and V apart, tokens outermost in a block."""
        heads = (spec.block_size, spec.num_kv_heads)
        sizes = {"k": spec.head_dim, "v": spec.head_dim_v or spec.head_dim}
        return KVLayout(
            name="xpu-tokens-heads-dim",
            buffers=tuple(
                KVBuffer(name=name, block_shape=(*heads, size), dtype=spec.dtype)
                for name, size in sizes.items()
            ),
            block_sizes=BLOCK_SIZES,
            alignment_bytes=64,
            slot_dtype="int64",
        )

    def make_impl(self, request: AttentionRequest, scale: float) -> AttentionImpl:
        """One layer.

        Raises:
            UnsupportedError: It is none that `supports` says yes to: a cap on scores would be
                taken and not applied.
        """
        self.check_supported(request)
        return XpuFlashImpl(request, scale)

    def make_builder(
        self, spec: KVCacheSpec, layout: KVLayout, device: torch.device
    ) -> AttentionMetadataBuilder:
        """One per group of layers that are alike."""
        return XpuFlashBuilder(spec, layout, device)


@dataclass(slots=True)
class FlashStep:
    """What the kernels read of one step.

    Attributes:
        num_tokens: Query rows, without padding.
        max_query_len: Most query rows of one sequence; 1: the kernels for decodes alone run.
        max_seq_len: Longest sequence.
        cu_seqlens_q: int32 ``[num_reqs + 1]``.
        cu_seqlens_k: int32 ``[num_reqs + 1]``, zeros: asked for, not read where there are blocks.
        seq_lens: int32 ``[num_reqs]``.
        block_table: int32 ``[num_reqs, max_blocks_per_seq]``; entries that no sequence has are 0.
    """

    num_tokens: int
    max_query_len: int
    max_seq_len: int
    cu_seqlens_q: torch.Tensor
    cu_seqlens_k: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor


class XpuFlashBuilder(AttentionMetadataBuilder):
    """Once per step and group; nothing here waits for the device."""

    def build(self, common: CommonAttentionMetadata) -> FlashStep:
        """See `FlashStep`."""
        return FlashStep(
            num_tokens=common.num_tokens,
            max_query_len=common.max_query_len,
            max_seq_len=common.max_seq_len,
            cu_seqlens_q=common.cu_seqlens_q,
            cu_seqlens_k=torch.zeros_like(common.cu_seqlens_q),
            seq_lens=common.seq_lens,
            block_table=own_blocks(common, self.spec.block_size),
        )


class XpuFlashImpl(AttentionImpl):
    """One layer."""

    def __init__(self, request: AttentionRequest, scale: float) -> None:
        super().__init__(request, scale)
        window = request.sliding_window
        self._left, self._right = (-1, -1) if window is None else (window - 1, 0)
        self._one: torch.Tensor | None = None

    def write_kv(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        slot_mapping: torch.Tensor,
    ) -> None:
        """See `AttentionImpl`. Rows of slot -1 are left out by the kernel."""
        key_cache, value_cache = kv_cache
        one = self._scale_of_one(k.device)
        torch.ops._C_cache_ops.reshape_and_cache_flash(
            _rows(k),
            _rows(v),
            key_cache,
            value_cache,
            slot_mapping,
            kv_cache_dtype="auto",
            k_scale=one,
            v_scale=one,
        )

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        metadata: FlashStep,
        out: torch.Tensor,
    ) -> None:
        """See `AttentionImpl`; keys and values are read from the cache."""
        key_cache, value_cache = kv_cache
        torch.ops._vllm_fa2_C.varlen_fwd(
            q[: metadata.num_tokens],
            key_cache,
            value_cache,
            out=out[: metadata.num_tokens],
            cu_seqlens_q=metadata.cu_seqlens_q,
            cu_seqlens_k=metadata.cu_seqlens_k,
            seqused_k=metadata.seq_lens,
            leftpad_k=None,
            block_table=metadata.block_table,
            alibi_slopes=None,
            max_seqlen_q=metadata.max_query_len,
            max_seqlen_k=metadata.max_seq_len,
            p_dropout=0.0,
            q_scale=None,
            k_scale=None,
            v_scale=None,
            softmax_scale=self.scale,
            softmax_sink=None,
            zero_tensors=False,
            is_causal=True,
            window_size_left=self._left,
            window_size_right=self._right,
            softcap=0.0,
            return_softmax=False,
            gen=None,
            num_splits=None,
            mix_batch=True,
            splits_per_seq=None,
            work_list=None,
        )

    def _scale_of_one(self, device: torch.device) -> torch.Tensor:
        """The op asks for scales, and reads them for a cache of 8 bits alone."""
        if self._one is None or self._one.device != device:
            self._one = torch.ones(1, dtype=torch.float32, device=device)
        return self._one


def _rows(x: torch.Tensor) -> torch.Tensor:
    """Heads of one token side by side, as the kernel counts them; tokens may be further apart."""
    return x if x.stride(1) == x.shape[2] and x.stride(2) == 1 else x.contiguous()
