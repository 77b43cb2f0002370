"""A driver for Triton that names a target and has no device; and the one number AITER asks of
it."""

from __future__ import annotations

import importlib
from typing import Any

NUM_UNITS = 8  # few, so that the interpreter's loop over programs is short


class TargetOnly:
    """As much of a driver as Triton and AITER ask for before a launch."""

    def __init__(self, arch: str, warp_size: int) -> None:
        self._target = importlib.import_module("triton.backends.compiler").GPUTarget(
            "hip", arch, warp_size
        )

    def get_current_target(self) -> Any:
        """What to compile for."""
        return self._target

    def get_current_device(self) -> int:
        """One that is never opened."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """None."""
        return 0

    def get_active_torch_device(self) -> Any:
        """Where tensors lie."""
        import torch

        return torch.device("cpu")


def activate(arch: str = "gfx942", warp_size: int = 64) -> None:
    """From now on Triton thinks of this target."""
    importlib.import_module("triton").runtime.driver.set_active(TargetOnly(arch, warp_size))
    info = importlib.import_module("aiter.ops.triton.utils.device_info")
    info.get_num_sms = lambda: NUM_UNITS  # type: ignore[attr-defined]  # it asks torch.cuda
