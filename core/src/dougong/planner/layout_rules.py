"""What a KV layout must be like, so that the core can allocate it and number its slots."""

from __future__ import annotations

from collections.abc import Iterator

from dougong.contracts import KVBuffer, KVLayout, dtype_bytes

MAX_SLOTS = {"int32": 2**31, "int64": 2**63}
"""Slot dtype → how many slots it can number from 0 on."""


def layout_problems(
    layout: KVLayout, *, block_size: int, kv_dtype: str, num_blocks: int | None
) -> Iterator[str]:
    """Every reason why a layout cannot be used as it is.

    Args:
        layout: As the backend gave it for blocks of ``block_size``.
        block_size: Tokens per block.
        kv_dtype: Of the cache that was asked for.
        num_blocks: Blocks that were asked for; ``None``: an automatic number, which stops where
            slots end.
    """
    if block_size not in layout.block_sizes:
        takes = ", ".join(map(str, layout.block_sizes)) or "none"
        yield f"its layout {layout.name} has no blocks of {block_size} tokens; takes {takes}"
    yield from _slot_problems(layout, block_size, num_blocks)
    if layout.alignment_bytes < 1:
        yield f"its layout {layout.name} aligns blocks to {layout.alignment_bytes} bytes"
    if unknown := [buffer for buffer in layout.buffers if not _is_known(buffer.dtype)]:
        names = ", ".join(f"{buffer.name} of {buffer.dtype}" for buffer in unknown)
        yield f"its layout {layout.name} has buffers of unknown dtypes: {names}"
        return
    sizes = {dtype_bytes(buffer.dtype) for buffer in layout.buffers}
    if dtype_bytes(kv_dtype) not in sizes:
        stored = ", ".join(dict.fromkeys(buffer.dtype for buffer in layout.buffers)) or "nothing"
        yield f"its layout {layout.name} stores {stored}, and no KV cache of {kv_dtype}"
    for buffer in layout.buffers:
        yield from _buffer_problems(buffer, layout.alignment_bytes)


def most_blocks(layout: KVLayout, block_size: int) -> int:
    """Blocks whose slots the layout's slot dtype can number."""
    return MAX_SLOTS[layout.slot_dtype] // block_size


def _slot_problems(layout: KVLayout, block_size: int, num_blocks: int | None) -> Iterator[str]:
    if layout.slot_dtype not in MAX_SLOTS:
        yield f"its slots are {layout.slot_dtype}; takes {', '.join(MAX_SLOTS)}"
    elif num_blocks is not None and num_blocks > (most := most_blocks(layout, block_size)):
        yield (
            f"its slots are {layout.slot_dtype}, which number {most} blocks of {block_size} "
            f"tokens, and num_kv_blocks={num_blocks} was asked for"
        )


def _buffer_problems(buffer: KVBuffer, alignment_bytes: int) -> Iterator[str]:
    axes = range(len(buffer.block_shape) + 1)
    order = tuple(axes) if buffer.stride_order is None else buffer.stride_order
    if buffer.block_axis not in axes or sorted(order) != list(axes):
        yield (
            f"its KV buffer {buffer.name} names block axis {buffer.block_axis} and the order "
            f"{order} of {len(axes)} axes"
        )
    elif alignment_bytes >= 1 and not _can_be_aligned(buffer, order[0], alignment_bytes):
        yield (
            f"its KV buffer {buffer.name} has blocks of {buffer.block_bytes} bytes, which cannot "
            f"each start at a multiple of {alignment_bytes}"
        )


def _is_known(dtype: str) -> bool:
    try:
        dtype_bytes(dtype)
    except ValueError:
        return False
    return True


def _can_be_aligned(buffer: KVBuffer, outermost: int, alignment_bytes: int) -> bool:
    """Blocks are a multiple, or lie outermost in memory so that room can be left between them."""
    if buffer.block_bytes % alignment_bytes == 0:
        return True
    return outermost == buffer.block_axis and alignment_bytes % dtype_bytes(buffer.dtype) == 0
