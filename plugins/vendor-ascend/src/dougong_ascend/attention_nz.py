"""Paged attention of the 310P, by the vendor's transformer library (ATB).

Its cores read the cache in fractal format (NZ): a token's row of K or V, all heads side by side, is
cut into strips of 16 elements, and a block holds strip after strip, each for all of its tokens. As
plain memory that is ``[strips, tokens, 16]``, and this is how the core allocates it.

What only a 310P can tell: whether the library also wants the tensor to carry the format's number.
The core's allocation carries none.
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
)

from dougong_ascend.names import PAGED_NZ
from dougong_ascend.slots import PaddingSlots, reserved_blocks

BLOCK_SIZE = 64
"""Tokens. Blocks times head size are at most 128 x 128 here, which 64 meets for all head sizes."""
STRIP = 16
"""Elements of a row that lie together."""

_MASK_SIZE = 2048
_MASK_COMPRESSED = 5  # the library's number for a mask that it lays along the diagonal
_HIDDEN = -10000.0  # what the library adds to a hidden score; minus infinity is not for this mask


class PagedNZBackend(AttentionBackend):
    """Of 310P alone: float16, nothing but plain causal attention, not captured."""

    name = "ascend/paged_nz"
    library = PAGED_NZ
    features = frozenset({"ascend.paged_nz"})
    limits = AttentionLimits(
        dtypes=frozenset({"float16"}),
        head_size_multiple=STRIP,
        max_head_size=256,
        block_sizes=(BLOCK_SIZE,),
    )

    def kv_layout(self, spec: KVCacheSpec) -> KVLayout:
        """K and V apart, each in strips; the first blocks are for padding."""

        def buffer(name: str, head_dim: int) -> KVBuffer:
            strips = -(-spec.num_kv_heads * head_dim // STRIP)
            return KVBuffer(
                name=name, block_shape=(strips, spec.block_size, STRIP), dtype=spec.dtype
            )

        return KVLayout(
            name="ascend-nz",
            buffers=(buffer("k", spec.head_dim), buffer("v", spec.head_dim_v or spec.head_dim)),
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
        return PagedNZImpl(request, scale)

    def make_builder(
        self, spec: KVCacheSpec, layout: KVLayout, device: torch.device
    ) -> AttentionMetadataBuilder:
        """One per group of layers that are alike."""
        return PagedNZBuilder(spec, layout, device)

    def graph_support(self) -> GraphSupport:
        """Around it, where a chip captures at all; 310P claims nothing of the kind."""
        return GraphSupport(GraphLevel.PIECEWISE)


@dataclass(frozen=True, slots=True)
class PagedNZStep:
    """What layers of a group share in one step.

    Attributes:
        num_tokens: Rows of queries that count.
        query_lens: int32 on the host; ``None``: each sequence has one query.
        seq_lens: int32 on the device.
        block_table: int32, one row per sequence.
        mask: float16 ``[2048, 2048]``, added to scores.
    """

    num_tokens: int
    query_lens: torch.Tensor | None
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    mask: torch.Tensor


class PagedNZBuilder(AttentionMetadataBuilder):
    """Picks the op: one for steps that only decode, another for all others."""

    def build(self, common: CommonAttentionMetadata) -> PagedNZStep:
        """Sequences without a query, which can only be the last ones, are left out."""
        starts = common.cu_seqlens_q_cpu[: common.num_reqs + 1]
        query_lens = starts.diff()
        num_reqs = int((query_lens > 0).sum())
        is_decode = common.num_tokens == num_reqs
        return PagedNZStep(
            num_tokens=common.num_tokens,
            query_lens=None if is_decode else query_lens[:num_reqs].int(),
            seq_lens=common.seq_lens[:num_reqs],
            block_table=common.block_table[:num_reqs],
            mask=added_mask(self.device),
        )


class PagedNZImpl(AttentionImpl):
    """One layer."""

    def __init__(self, request: AttentionRequest, scale: float) -> None:
        super().__init__(request, scale)
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
        slots = self._padding.settle(slot_mapping)
        torch.ops.atb._npu_reshape_and_cache(k.contiguous(), v.contiguous(), keys, values, slots)

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        metadata: PagedNZStep,
        out: torch.Tensor,
    ) -> None:
        """See `AttentionImpl`; keys and values are read from the cache."""
        keys, values = kv_cache
        num_tokens = metadata.num_tokens
        queries, attended = q[:num_tokens].contiguous(), out[:num_tokens]
        if metadata.query_lens is None:
            torch.ops.atb._npu_paged_attention(
                queries,
                keys,
                values,
                num_kv_heads=self.request.num_kv_heads,
                num_heads=self.request.num_heads,
                scale_value=self.scale,
                block_table=metadata.block_table,
                context_lens=metadata.seq_lens,
                out=attended,
            )
            return
        torch.ops.atb._npu_paged_attention_splitfuse_v2(
            queries,
            keys,
            values,
            metadata.block_table,
            metadata.seq_lens,
            metadata.mask,
            metadata.query_lens,
            num_kv_heads=self.request.num_kv_heads,
            num_heads=self.request.num_heads,
            scale_value=self.scale,
            mask_type=_MASK_COMPRESSED,
            out=attended,
        )


@cache
def added_mask(device: torch.device) -> torch.Tensor:
    """One for a device, 8 MiB, for every layer."""
    hidden = torch.full((_MASK_SIZE, _MASK_SIZE), _HIDDEN, dtype=torch.float16, device=device)
    return hidden.triu_(1)
