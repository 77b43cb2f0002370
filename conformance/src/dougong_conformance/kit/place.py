"""Arguments that are parts of wider tensors, as plain data that a driver lays out on the device.

Around the part lies poison, so that whoever reads or writes beside it shows.
"""

from __future__ import annotations

from typing import Any

import torch


def within(tensor: torch.Tensor, dim: int, before: int, after: int) -> dict[str, Any]:
    """``tensor`` as the middle of a wider one along an axis, poison on both sides.

    Returns:
        ``{"base", "shape", "strides", "offset"}``, in elements of the flat base.
    """
    dim %= tensor.dim()
    shape = list(tensor.shape)
    shape[dim] += before + after
    base = poisoned(shape, tensor.dtype)
    part = base.narrow(dim, before, tensor.shape[dim])
    part.copy_(tensor)
    return {
        "base": base.flatten(),
        "shape": list(tensor.shape),
        "strides": list(part.stride()),
        "offset": part.storage_offset(),
    }


def shifted(tensor: torch.Tensor) -> dict[str, Any]:
    """``tensor`` one element after the start of its memory: pointers are aligned to no more."""
    base = poisoned([tensor.numel() + 2], tensor.dtype)
    base[1:-1] = tensor.flatten()
    strides = list(torch.empty(tensor.shape, device="meta").stride())
    return {"base": base, "shape": list(tensor.shape), "strides": strides, "offset": 1}


def part_of(placed: dict[str, Any]) -> torch.Tensor:
    """The part itself, of a description or of what came back in its place."""
    base: torch.Tensor = placed["base"]
    return base.as_strided(placed["shape"], placed["strides"], placed["offset"])


def outside(placed: dict[str, Any], base: torch.Tensor) -> torch.Tensor:
    """The elements of a base that belong to no part, in order."""
    is_part = torch.zeros(base.numel(), dtype=torch.bool)
    is_part.as_strided(placed["shape"], placed["strides"], placed["offset"]).fill_(True)
    return base[~is_part]


def poisoned(shape: list[int] | tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """NaN, or for whole numbers bytes of 0x7F; False for bools."""
    if dtype.is_floating_point:
        return torch.full(tuple(shape), torch.nan, dtype=dtype)
    if dtype is torch.bool:
        return torch.zeros(tuple(shape), dtype=dtype)
    size = torch.empty(0, dtype=dtype).element_size()
    return torch.full((*shape[:-1], shape[-1] * size), 0x7F, dtype=torch.uint8).view(dtype)
