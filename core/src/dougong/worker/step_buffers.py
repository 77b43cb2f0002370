"""Persistent host and device buffers of a step's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import torch

from dougong.contracts import DeviceRuntime


class StepBuffer:
    """A host tensor, its NumPy view, and the device tensor it is copied to.

    Where device memory is host memory the two are one and nothing is copied.

    Args:
        runtime: Gives host memory fit for copies.
        device: Where the step reads.
        shape: Largest shape.
        dtype: Of the elements.
    """

    def __init__(
        self,
        runtime: DeviceRuntime,
        device: torch.device,
        shape: Sequence[int],
        dtype: torch.dtype,
    ) -> None:
        self.host = runtime.empty_host(shape, dtype)
        self.array: npt.NDArray[Any] = self.host.numpy()
        self._is_shared = self.host.device == device
        self._device = (
            self.host if self._is_shared else torch.empty(tuple(shape), dtype=dtype, device=device)
        )

    def to_device(self, count: int) -> torch.Tensor:
        """The first ``count`` entries on the device; the copy is ordered with the current
        stream."""
        part = self._device[:count]
        if not self._is_shared:
            part.copy_(self.host[:count], non_blocking=True)
        return part
