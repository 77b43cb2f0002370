"""What ``torch.sim`` is: the functions that torch and its users expect of a device's module.

Most of them are ``torch.accelerator`` under the names that ``torch.cuda`` made common.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.accelerator import (
    current_stream,
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_peak_memory_stats,
    set_stream,
    synchronize,
)

__all__ = [
    "DeviceProperties",
    "Event",
    "Stream",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "is_available",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_peak_memory_stats",
    "set_device",
    "set_rng_state",
    "set_stream",
    "stream",
    "synchronize",
]

DeviceLike = torch.device | str | int | None
_library: Any = torch.ops.dougong_sim


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """What the driver tells of one device."""

    name: str
    uuid: str  # of the physical device: the same in every process and under every mask
    physical_index: int
    total_memory: int  # bytes


def _index(device: DeviceLike) -> int:
    if device is None:
        return current_device()
    if isinstance(device, int):
        return device
    index = torch.device(device).index
    return current_device() if index is None else int(index)


def is_available() -> bool:
    """Whether a device is visible."""
    return device_count() > 0


def is_initialized() -> bool:
    """Whether this process has a context on any device."""
    return any(_library.has_context(index) for index in range(device_count()))


def device_count() -> int:
    """Visible devices. Makes no context."""
    return int(_library.device_count())


def current_device() -> int:
    """Of the calling thread."""
    return torch.accelerator.current_device_index()


def set_device(device: DeviceLike) -> None:
    """Of the calling thread. Raises torch.AcceleratorError for an index that is not there."""
    torch.accelerator.set_device_index(_index(device))


@contextmanager
def device(device: DeviceLike) -> Iterator[None]:
    """Another current device inside."""
    before = current_device()
    set_device(device)
    try:
        yield
    finally:
        set_device(before)


def get_device_name(device: DeviceLike = None) -> str:
    """The same for all."""
    return get_device_properties(device).name


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """Makes no context. Raises torch.AcceleratorError for an index that is not there."""
    index = _index(device)
    physical = int(_library.physical_index(index))
    return DeviceProperties(
        name="Simulated accelerator",
        uuid=f"SIM-{physical:08d}",
        physical_index=physical,
        total_memory=int(_library.memory_limit(index)),
    )


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Free and total bytes."""
    free, total = torch.accelerator.get_memory_info(_index(device))
    return int(free), int(total)


def Stream(device: DeviceLike = None, *, priority: int = 0) -> torch.Stream:  # noqa: N802  # torch's name
    """A ``torch.Stream`` of this device type, on the current device unless told."""
    return torch.Stream(torch.device("sim", _index(device)), priority=priority)


def Event(*, enable_timing: bool = True, blocking: bool = False) -> torch.Event:  # noqa: N802  # torch's name
    """A ``torch.Event`` of this device type; it always keeps the time."""
    return torch.Event("sim", enable_timing=enable_timing, blocking=blocking)


def default_stream(device: DeviceLike = None) -> torch.Stream:
    """Where work goes unless told otherwise."""
    kind = int(torch._C._autograd.DeviceType.PrivateUse1.value)
    return torch.Stream(stream_id=0, device_index=_index(device), device_type=kind)


@contextmanager
def stream(stream: torch.Stream | None) -> Iterator[None]:
    """Work inside goes to this stream; None changes nothing."""
    if stream is None:
        yield
        return
    with stream:
        yield


def manual_seed(seed: int) -> None:
    """Seeds the current device."""
    _library.seed(current_device(), seed)


def manual_seed_all(seed: int) -> None:
    """Seeds every device; ``torch.manual_seed`` calls it. Makes no context."""
    for index in range(device_count()):
        _library.seed(index, seed)


def get_rng_state(device: DeviceLike = "sim") -> torch.Tensor:
    """Sixteen bytes: seed and number of draws."""
    state: torch.Tensor = _library.rng_state(_index(device))
    return state


def set_rng_state(state: torch.Tensor, device: DeviceLike = "sim") -> None:
    """As `get_rng_state` gave it."""
    _library.set_rng_state(_index(device), state)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Asked by torch's autocast."""
    return [torch.float16, torch.bfloat16]


def _is_in_bad_fork() -> bool:
    return bool(_library.is_bad_fork())


def _lazy_init() -> None:
    """Asked by torch's storages; contexts are made by the first use."""
