"""Device memory of one KV buffer, laid out as its backend says."""

from __future__ import annotations

import math

import torch

from dougong.contracts import KVBuffer, PluginError


def allocate_buffer(
    buffer: KVBuffer, num_blocks: int, device: torch.device, alignment_bytes: int = 1
) -> torch.Tensor:
    """One buffer, its axes in memory as ``stride_order`` says; contents undefined.

    Where blocks are outermost in memory, each starts at a multiple of ``alignment_bytes``.

    Raises:
        PluginError: Blocks are not outermost and their bytes are no multiple of the alignment.
    """
    shape, dtype = buffer.shape(num_blocks), getattr(torch, buffer.dtype)
    order = buffer.stride_order or tuple(range(len(shape)))
    sizes = [shape[axis] for axis in order]
    if buffer.block_bytes % alignment_bytes == 0:
        stored = _aligned_empty(math.prod(sizes), dtype, device, alignment_bytes).view(sizes)
    elif order[0] == buffer.block_axis and alignment_bytes % dtype.itemsize == 0:
        stride = -(-buffer.block_bytes // alignment_bytes) * alignment_bytes // dtype.itemsize
        flat = _aligned_empty(num_blocks * stride, dtype, device, alignment_bytes)
        inner = math.prod(sizes[1:])
        stored = flat.view(num_blocks, stride)[:, :inner].view(sizes)
    else:
        raise PluginError(
            f"KV buffer {buffer.name!r} has blocks of {buffer.block_bytes} bytes, which cannot "
            f"each start at a multiple of {alignment_bytes}: put the block axis outermost in "
            "memory, or make the block a multiple"
        )
    return stored.permute([order.index(axis) for axis in range(len(shape))])


def _aligned_empty(
    num_elements: int, dtype: torch.dtype, device: torch.device, alignment_bytes: int
) -> torch.Tensor:
    """A flat tensor that starts at a multiple of ``alignment_bytes``."""
    spare = -(-alignment_bytes // dtype.itemsize)
    flat = torch.empty(num_elements + spare, dtype=dtype, device=device)
    offset = -flat.data_ptr() % alignment_bytes // dtype.itemsize
    return flat[offset : offset + num_elements]
