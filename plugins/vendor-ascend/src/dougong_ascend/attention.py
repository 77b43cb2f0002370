"""Paged attention by ``npu_fused_infer_attention_score``: one op for prefill, decode and both.

Calls follow the vendor's rules, which the op does not always check: lengths are lists on the host,
those of the queries cumulative and those of the sequences not; tensors are contiguous; the mask is
the fixed one of 2048 by 2048, which the op lays along the diagonal; the writing op's default is
another layout of the cache. What is asked for beyond the limits is refused while planning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

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
    Support,
    UnsupportedError,
)

from dougong_ascend.names import FUSED_INFER
from dougong_ascend.slots import PaddingSlots, reserved_blocks

BLOCK_SIZE = 128
MAX_HEADS = 256
MAX_GROUP = 64
MAX_ROW = 65535
MAX_SEQUENCES = 4096
MAX_CACHE_ELEMENTS = 2**31 - 1

_MASK_SIZE = 2048
_CAUSAL, _BAND = 3, 4
_UNBOUNDED = 2**31 - 1
_DTYPES = frozenset({"bfloat16", "float16"})


class FusedInferBackend(AttentionBackend):
    """Of every family but 310P."""

    name = "ascend/fused_infer"
    library = FUSED_INFER
    features = frozenset({"ascend.fused_infer"})
    limits = AttentionLimits(
        dtypes=_DTYPES,
        head_size_multiple=16,
        max_head_size=256,
        block_sizes=(BLOCK_SIZE,),
        sliding_window=True,
    )

    def supports(self, request: AttentionRequest) -> Support:
        """Within the limits, and with so many heads as the op takes.

        Sinks the op would take in its second version; but nothing of contract 1.0 hands them to an
        `AttentionImpl`, so layers that have them are not taken.
        """
        reasons = []
        if not (within := self.limits.check(request)):
            reasons.append(within.reason)
        heads, kv_heads = request.num_heads, request.num_kv_heads
        if heads > MAX_HEADS:
            reasons.append(f"{heads} heads; takes at most {MAX_HEADS}")
        if heads // kv_heads > MAX_GROUP:
            reasons.append(f"{heads // kv_heads} heads per KV head; takes at most {MAX_GROUP}")
        if (row := kv_heads * request.head_dim) > MAX_ROW:
            reasons.append(f"{row} elements of K per token; takes at most {MAX_ROW}")
        return Support.no("; ".join(reasons)) if reasons else Support.yes()

    def kv_layout(self, spec: KVCacheSpec) -> KVLayout:
        """K and V apart, tokens outermost in a block; the first blocks are for padding."""
        shape = (spec.block_size, spec.num_kv_heads)
        return KVLayout(
            name="ascend-tokens-heads-dim",
            buffers=(
                KVBuffer(name="k", block_shape=(*shape, spec.head_dim), dtype=spec.dtype),
                KVBuffer(
                    name="v",
                    block_shape=(*shape, spec.head_dim_v or spec.head_dim),
                    dtype=spec.dtype,
                ),
            ),
            block_sizes=(BLOCK_SIZE,),
            slot_dtype="int32",
            reserved_blocks=reserved_blocks(BLOCK_SIZE),
        )

    def make_impl(self, request: AttentionRequest, scale: float) -> AttentionImpl:
        """One layer.

        Raises:
            UnsupportedError: `supports` says no to it.
        """
        self.check_supported(request)
        return FusedInferImpl(request, scale)

    def make_builder(
        self, spec: KVCacheSpec, layout: KVLayout, device: torch.device
    ) -> AttentionMetadataBuilder:
        """One per group of layers that are alike."""
        return FusedInferBuilder(spec, layout, device)

    def graph_support(self) -> GraphSupport:
        """Not captured itself: the op takes lengths from the host, and a graph would keep them."""
        return GraphSupport(GraphLevel.PIECEWISE)


@dataclass(frozen=True, slots=True)
class FusedInferStep:
    """What layers of a group share in one step.

    Attributes:
        num_tokens: Rows of queries that count.
        query_ends: Row after the last of each sequence.
        seq_lens: Tokens of each sequence.
        block_table: int32, one row per sequence.
        mask: int8 ``[2048, 2048]``, 1 above the diagonal.
    """

    num_tokens: int
    query_ends: list[int]
    seq_lens: list[int]
    block_table: torch.Tensor
    mask: torch.Tensor


class FusedInferBuilder(AttentionMetadataBuilder):
    """Turns host lengths into lists; nothing is asked of the device."""

    def build(self, common: CommonAttentionMetadata) -> FusedInferStep:
        """Sequences without a query, which can only be the last ones, are left out: the op wants
        as many rows of the table as lengths."""
        ends = common.cu_seqlens_q_cpu[1 : common.num_reqs + 1].tolist()
        num_reqs = len(ends)
        while num_reqs > 1 and ends[num_reqs - 1] == ends[num_reqs - 2]:
            num_reqs -= 1
        if num_reqs > MAX_SEQUENCES:
            raise UnsupportedError(
                f"a step of {num_reqs} sequences; npu_fused_infer_attention_score takes at most "
                f"{MAX_SEQUENCES}: set --max-num-seqs to that or less"
            )
        return FusedInferStep(
            num_tokens=common.num_tokens,
            query_ends=ends[:num_reqs],
            seq_lens=common.seq_lens_cpu[:num_reqs].tolist(),
            block_table=common.block_table[:num_reqs],
            mask=causal_mask(self.device),
        )


class FusedInferImpl(AttentionImpl):
    """One layer.

    A window of ``w`` tokens, a query's own among them, is the band of ``w - 1`` keys before it.
    """

    def __init__(self, request: AttentionRequest, scale: float) -> None:
        super().__init__(request, scale)
        window = request.sliding_window
        self._sparse_mode = _CAUSAL if window is None else _BAND
        self._pre_tokens = _UNBOUNDED if window is None else window - 1
        self._next_tokens = _UNBOUNDED if window is None else 0
        self._padding = PaddingSlots()

    def write_kv(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        slot_mapping: torch.Tensor,
    ) -> None:
        """See `AttentionImpl`."""
        keys, values = kv_cache
        torch.ops.npu.npu_scatter_pa_kv_cache(
            k.contiguous(),
            v.contiguous(),
            keys,
            values,
            self._padding.settle(slot_mapping),
            cache_mode="Norm",
        )

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        metadata: FusedInferStep,
        out: torch.Tensor,
    ) -> None:
        """See `AttentionImpl`; keys and values are read from the cache."""
        keys, values = kv_cache
        if keys.numel() > MAX_CACHE_ELEMENTS:
            raise UnsupportedError(
                f"a layer's K of {keys.numel()} elements; npu_fused_infer_attention_score takes "
                f"at most {MAX_CACHE_ELEMENTS}: set --num-kv-blocks to "
                f"{MAX_CACHE_ELEMENTS // keys[0].numel()} or less"
            )
        num_tokens = metadata.num_tokens
        attended, _ = torch.ops.npu.npu_fused_infer_attention_score(
            q[:num_tokens].contiguous(),
            keys.flatten(2),
            values.flatten(2),
            atten_mask=metadata.mask,
            actual_seq_lengths=metadata.query_ends,
            actual_seq_lengths_kv=metadata.seq_lens,
            block_table=metadata.block_table,
            num_heads=self.request.num_heads,
            scale=self.scale,
            pre_tokens=self._pre_tokens,
            next_tokens=self._next_tokens,
            input_layout="TND",
            num_key_value_heads=self.request.num_kv_heads,
            sparse_mode=self._sparse_mode,
            block_size=BLOCK_SIZE,
        )
        out[:num_tokens].copy_(attended)


@cache
def causal_mask(device: torch.device) -> torch.Tensor:
    """The op's own form of "no key after the query": one for a device, 4 MiB, for every layer."""
    ones = torch.ones(_MASK_SIZE, _MASK_SIZE, dtype=torch.int8, device=device)
    return ones.triu_(1)
