"""What an op does beside computing: copies to and from the host, waits, casts of whole weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_READS = ("_local_scalar_dense", "nonzero", "masked_select", "equal")
_COPIES = ("_to_copy", "copy_", "_copy_from")


class CopyTrace(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own has no types
    """Counts what passes torch's dispatcher inside the block.

    Args:
        device: Of the op. Where it is the host itself, no copy between both can be told.
        weights: Whose whole-size casts are counted.
    """

    def __init__(self, device: torch.device, weights: Sequence[torch.Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self._device_type = device.type
        self._weight_sizes = [weight.numel() for weight in weights]
        self._counts = {"to_host": 0, "from_host": 0, "syncs": 0, "weight_casts": 0}

    def counts(self) -> dict[str, int]:
        """What was seen."""
        return dict(self._counts)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Look, then do it."""
        # Where no gradients are kept, ops made of others arrive whole: see what they are made of.
        with self:
            made = func.decompose(*args, **(kwargs or {}))
        if made is not NotImplemented:
            return made
        name = func.overloadpacket.__name__
        result = func(*args, **(kwargs or {}))
        if name in _READS and self._device_type != "cpu":
            self._counts["syncs"] += self._is_here(args[0])
        if name in _COPIES and isinstance(result, torch.Tensor):
            source = args[1] if name == "copy_" else args[0]
            self._note_copy(source, result)
        return result

    def _note_copy(self, source: Any, result: torch.Tensor) -> None:
        if not isinstance(source, torch.Tensor):
            return
        if self._device_type != "cpu" and source.device.type != result.device.type:
            # One number on its way is no copy of data.
            key = "to_host" if result.device.type == "cpu" else "from_host"
            self._counts[key] += source.numel() > 1
        if source.dtype is not result.dtype and source.numel() in self._weight_sizes:
            self._counts["weight_casts"] += 1

    def _is_here(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.device.type == self._device_type
