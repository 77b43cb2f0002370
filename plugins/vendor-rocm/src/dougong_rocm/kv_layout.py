"""The KV cache of this wheel's backends: one layout, so that they may share a layer."""

from __future__ import annotations

from dougong.contracts import KVBuffer, KVCacheSpec, KVLayout

ALIGNMENT_BYTES = 16  # of the widest load of a kernel


def paged_layout(spec: KVCacheSpec, block_sizes: tuple[int, ...]) -> KVLayout:
    """K and V apart, ``[blocks, tokens, heads, head_dim]``, contiguous."""
    tokens_heads = (spec.block_size, spec.num_kv_heads)
    return KVLayout(
        name="rocm-tokens-heads-dim",
        buffers=(
            KVBuffer(name="k", block_shape=(*tokens_heads, spec.head_dim), dtype=spec.dtype),
            KVBuffer(
                name="v",
                block_shape=(*tokens_heads, spec.head_dim_v or spec.head_dim),
                dtype=spec.dtype,
            ),
        ),
        block_sizes=block_sizes,
        alignment_bytes=ALIGNMENT_BYTES,
        slot_dtype="int64",
    )
