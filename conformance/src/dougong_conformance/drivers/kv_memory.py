"""Memory of a KV cache as its layout says, filled with what nobody may read."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from dougong.contracts import KVBuffer, KVLayout

NAN = 0xFF
"""Byte that makes NaN in every float dtype."""
FINITE = 0x41
"""Byte that makes a number, which survives being read and written again."""


@dataclass(frozen=True, slots=True)
class KVMemory:
    """The buffers of one layer.

    Attributes:
        flats: All memory of each, gaps between blocks included.
        buffers: As the backend gets them.
        layout: Of the backend.
    """

    flats: tuple[torch.Tensor, ...]
    buffers: tuple[torch.Tensor, ...]
    layout: KVLayout

    def blocks(self) -> list[torch.Tensor]:
        """uint8 ``[num_blocks, bytes]`` on the host, of each buffer."""
        found = []
        for one, buffer in zip(self.layout.buffers, self.buffers, strict=True):
            rows = (
                buffer.cpu().movedim(one.block_axis, 0).clone(memory_format=torch.contiguous_format)
            )
            found.append(rows.view(rows.shape[0], -1).view(torch.uint8))
        return found

    def everything(self) -> list[torch.Tensor]:
        """uint8 on the host: all bytes of each buffer, gaps included."""
        return [flat.cpu().clone().view(torch.uint8) for flat in self.flats]


def allocate(
    layout: KVLayout, num_blocks: int, device: torch.device, *, fill: int | None = NAN
) -> KVMemory:
    """Buffers of ``num_blocks`` blocks, filled with a byte or left as the device gives them."""
    made = [_buffer(one, num_blocks, device, layout.alignment_bytes) for one in layout.buffers]
    if fill is not None:
        for flat, _ in made:
            poison = torch.full((flat.numel() * flat.element_size(),), fill, dtype=torch.uint8)
            flat.copy_(poison.view(flat.dtype))
    return KVMemory(tuple(flat for flat, _ in made), tuple(part for _, part in made), layout)


def _buffer(
    buffer: KVBuffer, num_blocks: int, device: torch.device, alignment_bytes: int
) -> tuple[torch.Tensor, torch.Tensor]:
    shape, dtype = buffer.shape(num_blocks), getattr(torch, buffer.dtype)
    order = buffer.stride_order or tuple(range(len(shape)))
    sizes = [shape[axis] for axis in order]
    strides = [math.prod(sizes[at + 1 :]) for at in range(len(sizes))]
    if buffer.block_bytes % alignment_bytes:
        # Blocks lie outermost then, with room between them.
        strides[0] = -(-buffer.block_bytes // alignment_bytes) * alignment_bytes // dtype.itemsize
    spare = -(-alignment_bytes // dtype.itemsize)
    flat = torch.empty(sizes[0] * strides[0] + spare, dtype=dtype, device=device)
    start = -flat.data_ptr() % alignment_bytes // dtype.itemsize
    flat = flat[start : start + sizes[0] * strides[0]]
    stored = flat.as_strided(sizes, strides, flat.storage_offset())
    return flat, stored.permute([order.index(axis) for axis in range(len(shape))])
