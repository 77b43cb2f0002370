"""What an implementation was given, kept to see what it changed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch


class ArgumentCopies:
    """Copies of tensor arguments on the host, so that the device's memory is measured without them.

    Args:
        names: Of an op's arguments.
        args: Of a call of it, in the same order.
    """

    def __init__(self, names: Sequence[str], args: Sequence[Any]) -> None:
        self._names = names
        self._args = args
        self._kept = [_on_host(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]

    def changed(self, *, allowed: Collection[str]) -> list[str]:
        """Names of tensors with another bit in them now, but for ``allowed`` ones."""
        return [
            name
            for name, arg, kept in zip(self._names, self._args, self._kept, strict=False)
            if name not in allowed and isinstance(arg, torch.Tensor) and not _is_same(arg, kept)
        ]

    def restored(self) -> tuple[Any, ...]:
        """The arguments as they were, in memory of their own."""
        return tuple(
            kept.to(arg.device) if isinstance(arg, torch.Tensor) else arg
            for arg, kept in zip(self._args, self._kept, strict=True)
        )


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, device="cpu", memory_format=torch.contiguous_format).copy_(
        tensor
    )


def _is_same(tensor: torch.Tensor, kept: torch.Tensor) -> bool:
    """Bit by bit, since NaN equals nothing, itself included."""
    return torch.equal(_bits(_on_host(tensor)), _bits(kept))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)
