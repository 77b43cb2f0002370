"""Paged attention in the device's own way: keys and values together, transposed, in tiles.

The backend owns the KV cache: how it lies in memory, who writes it, prefill and decode. What the
core must know of it is data (`TileAttentionBackend.limits` and ``kv_layout``). Computing is in
`dougong_sim.tiles`; a vendor calls kernels of the library instead.
"""

from __future__ import annotations

from collections.abc import Sequence

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

from dougong_sim.platform import KERNELS
from dougong_sim.tiles import WORKSPACE_BYTES, StepTiles, attend_tiles

_BLOCK_SIZES = (48, 24)
_DTYPES = frozenset({"float32", "bfloat16", "float16"})


class TileAttentionBackend(AttentionBackend):
    """Answers questions while planning, without torch's device; then makes the parts that run."""

    name = "sim/tiles"
    library = KERNELS  # where `import_kernels` reports it missing, this backend is passed over
    limits = AttentionLimits(
        dtypes=_DTYPES,
        kv_dtypes=_DTYPES,
        head_size_multiple=8,
        max_head_size=256,
        block_sizes=_BLOCK_SIZES,
        sliding_window=True,
        soft_cap=True,
        graph=True,
    )

    def kv_layout(self, spec: KVCacheSpec) -> KVLayout:
        """One buffer; per block and head the rows of K, then those of V, each row one element of
        the head for every token of the block.

        The axes are written heads first and stored blocks first, so that each block is one piece
        that can be aligned. Block 0 belongs to the backend: rows of padding, which must not be
        written anywhere that counts, are written there, and what no sequence has is read there. So
        neither needs a decision of the host.
        """
        rows = spec.head_dim + (spec.head_dim_v or spec.head_dim)
        buffer = KVBuffer(
            name="kv",
            block_shape=(spec.num_kv_heads, rows, spec.block_size),
            dtype=spec.dtype,
            block_axis=1,
            stride_order=(1, 0, 2, 3),
        )
        return KVLayout(
            name="sim-heads-rows-tokens",
            buffers=(buffer,),
            block_sizes=_BLOCK_SIZES,
            alignment_bytes=256,
            slot_dtype="int32",
            reserved_blocks=1,
        )

    def make_impl(self, request: AttentionRequest, scale: float) -> AttentionImpl:
        """One layer."""
        return TileAttentionImpl(request, scale)

    def make_builder(
        self, spec: KVCacheSpec, layout: KVLayout, device: torch.device
    ) -> AttentionMetadataBuilder:
        """One per group of layers that are alike."""
        return TileMetadataBuilder(spec, layout, device)

    def workspace_bytes(self, request: AttentionRequest, max_num_tokens: int) -> int:
        """Tiles are computed a few at a time, as many as fit into so much."""
        return WORKSPACE_BYTES

    def graph_support(self) -> GraphSupport:
        """Whole steps of any kind: shapes alone decide what is launched."""
        return GraphSupport(GraphLevel.FULL)


class TileMetadataBuilder(AttentionMetadataBuilder):
    """Once per step and group. Nothing is computed here: a captured step is replayed with other
    lengths in the same buffers, so all that follows from lengths is computed where it is captured,
    by the first layer."""

    def build(self, common: CommonAttentionMetadata) -> StepTiles:
        """What layers of this group share in one step."""
        return StepTiles(common, self.spec.block_size, self.spec.sliding_window)


class TileAttentionImpl(AttentionImpl):
    """One layer."""

    def write_kv(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        slot_mapping: torch.Tensor,
    ) -> None:
        """See `AttentionImpl`. Slot -1 becomes slot 0, in the block that nobody reads from."""
        (cache,) = kv_cache
        block_size = cache.shape[-1]
        slots = slot_mapping.clamp(min=0)
        blocks = slots.div(block_size, rounding_mode="floor")
        rows = torch.cat((k, v), dim=-1).to(cache.dtype)  # [num_tokens, num_kv_heads, rows]
        by_token = cache.permute(1, 3, 0, 2)  # [blocks, tokens, num_kv_heads, rows]
        by_token.index_put_((blocks, slots - blocks * block_size), rows)

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        metadata: StepTiles,
        out: torch.Tensor,
    ) -> None:
        """See `AttentionImpl`; keys and values are read from the cache."""
        (cache,) = kv_cache
        metadata.enter(self, num_tokens=q.shape[0])
        attended = attend_tiles(q, cache, metadata, self.scale, self.request.soft_cap)
        out.copy_(attended)
