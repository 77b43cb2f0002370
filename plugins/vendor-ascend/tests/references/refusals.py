"""How a reference refuses what the vendor's documentation does not allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

HALVES = (torch.float16, torch.bfloat16)
"""What most of the vendor's kernels compute in."""

_EXTENDED: set[torch.dtype] = set()


class VendorLimitError(RuntimeError):
    """A documented limit of the vendor's op was passed; the device would refuse or be wrong."""


def require(holds: bool, op: str, limit: str) -> None:
    """Raise unless a documented limit holds.

    Raises:
        VendorLimitError: It does not; the message names the op and the limit.
    """
    if not holds:
        raise VendorLimitError(f"{op}: {limit}")


def require_unused(op: str, arguments: Mapping[str, Any]) -> None:
    """Raise for an argument that is given and that the reference does not read."""
    used = [
        name
        for name, value in arguments.items()
        if isinstance(value, torch.Tensor) or value not in (None, 0)
    ]
    require(not used, op, f"no reference for {', '.join(used)}")


def require_contiguous(op: str, **tensors: torch.Tensor | None) -> None:
    """Raise for a tensor with gaps or turned axes: kernels read memory as it lies."""
    for name, tensor in tensors.items():
        require(tensor is None or tensor.is_contiguous(), op, f"{name} must be contiguous")


def require_dtype(op: str, allowed: tuple[torch.dtype, ...], **tensors: torch.Tensor) -> None:
    """Raise for a dtype that the op does not take, and for tensors of different dtypes."""
    dtypes = {name: tensor.dtype for name, tensor in tensors.items()}
    takes = {*allowed, *_EXTENDED}
    for name, dtype in dtypes.items():
        require(dtype in takes, op, f"{name} is {dtype}; takes {sorted(map(str, allowed))}")
    require(len(set(dtypes.values())) == 1, op, f"dtypes differ: {dtypes}")


def extend_dtypes(*dtypes: torch.dtype) -> None:
    """Let every reference of this process take these too.

    A double that computes on the host can do so, where the device cannot: greedy tokens are then
    comparable with the CPU's in float32. Whoever calls it says so in what it reports.
    """
    _EXTENDED.update(dtypes)


@contextmanager
def only_documented() -> Iterator[None]:
    """Without what `extend_dtypes` allowed, for the time of the block."""
    before = set(_EXTENDED)
    _EXTENDED.clear()
    yield
    _EXTENDED.update(before)
