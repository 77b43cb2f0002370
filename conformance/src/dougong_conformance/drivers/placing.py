"""Arguments on the device, some of them parts of wider tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor on the device.

    Attributes:
        base: Flat memory around it, or the tensor itself.
        part: What is passed.
    """

    base: torch.Tensor
    part: torch.Tensor


def place(value: Any, device: torch.device) -> Any:
    """A tensor or a description of a part (``kit.place``) in memory of its own; else as it is.

    A tensor under ``host`` stays there.
    """
    if isinstance(value, torch.Tensor):
        there = to_device(value, device)
        return Placed(there, there)
    if isinstance(value, dict) and "base" in value:
        base = to_device(value["base"], device)
        return Placed(base, base.as_strided(value["shape"], value["strides"], value["offset"]))
    if isinstance(value, dict) and "host" in value:
        return value["host"]
    return value


def to_device(value: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy on the device, contiguous; never the host's own memory."""
    return torch.empty(value.shape, dtype=value.dtype, device=device).copy_(value)
