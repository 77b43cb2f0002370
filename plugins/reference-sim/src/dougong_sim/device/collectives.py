"""Registers ``simccl`` with torch.distributed, as a vendor's torch extension does when imported.

``torch.distributed.init_process_group("simccl")`` and ``dougong.reference.TorchCommunicator`` then
find it by name. Work is enqueued on the current stream; errors are the device's and come late.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup, ProcessGroupGloo, Store

from dougong_sim.device.loading import NAME, load

BACKEND = "simccl"


def register() -> None:
    """Make the name known. Does nothing when repeated.

    Raises:
        LoadError: The device cannot be used in this process.
    """
    load()
    if BACKEND.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(BACKEND, _create, devices=[NAME])


def _create(store: Store, rank: int, size: int, timeout: timedelta) -> Any:
    # The carrier moves the bytes, on the host. Without pybind in the library, groups cross to it
    # and back as boxed objects.
    carrier = ProcessGroup(rank, size)  # type: ignore[call-arg]  # of two, the stub knows one
    carrier._register_backend(
        torch.device("cpu"),
        ProcessGroup.BackendType.GLOO,
        ProcessGroupGloo(store, rank, size, timeout=timeout),
    )
    boxed = torch.ops.dougong_sim.make_process_group(carrier.boxed(), rank, size)
    return ProcessGroup.unbox(boxed)
