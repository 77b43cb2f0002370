"""Loads the double's libraries before anything asks for the vendor's; torch is not imported here.

Copied into the lane's environment, where Python runs `load` as it starts (a ``.pth`` file) and
torch runs `emulate` as it is imported (an entry point in ``torch.backends``). So every process of
that environment has a device, and none outside of it.

``ASCEND_DOUBLE_EMULATION=0`` leaves the ops as torch_npu has them, which then fail one by one.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_LIBRARIES = Path(__file__).parent / "dougong_ascend_double"


def load() -> None:
    """Libraries by their names, so that the linker does not look for the vendor's."""
    _set_variables()
    for name in (_LIBRARIES / "order.txt").read_text("utf-8").split():
        ctypes.CDLL(str(_LIBRARIES / name), mode=ctypes.RTLD_GLOBAL)


def emulate() -> None:
    """Compute on the host what the device is asked for."""
    _set_variables()  # a fork may have dropped them since Python started
    if os.environ.get("ASCEND_DOUBLE_EMULATION") != "0":
        from tests.double import emulation

        emulation.install()


def _set_variables() -> None:
    """Work is not queued to a thread of torch_npu's, since what is computed here does not wait for
    that queue; and an op without a kernel for the device is refused, not computed behind its back.
    torch_npu reads these when the first op runs."""
    os.environ.setdefault("TASK_QUEUE_ENABLE", "0")
    os.environ.setdefault("TORCH_NPU_FALLBACK_CPU_DISABLE", "1")
