"""The host as a device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import torch

from dougong.contracts import DeviceError, Event, MemoryInfo, Stream
from dougong.cpu.memory import read_memory, resident_bytes
from dougong.cpu.plugin import cpu_name
from dougong.reference import TorchDeviceRuntime


class _HostStream:
    """Work is done when its call returns, so there is never anything to wait for."""

    def wait_event(self, event: Event) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""


class _HostEvent:
    """A point that has always passed."""

    def record(self, stream: Stream | None = None) -> None:
        """Passed at once."""

    def query(self) -> bool:
        """It has passed."""
        return True

    def synchronize(self) -> None:
        """Nothing to wait for."""


class CpuDeviceRuntime(TorchDeviceRuntime):
    """One device, index 0: all processors this process may use."""

    def __init__(self) -> None:
        super().__init__("cpu", pin_memory=False)

    def device_count(self) -> int:
        """The host is one device."""
        return 1

    def device_name(self, device_index: int) -> str:
        """As the kernel names it."""
        return cpu_name()

    def device_uuid(self, device_index: int) -> str:
        """A host has none."""
        return ""

    def torch_device(self, device_index: int) -> torch.device:
        """Without an index: torch writes host tensors so."""
        return torch.device("cpu")

    def memory_info(self, device_index: int) -> MemoryInfo:
        """Within the control group's limit, if there is one."""
        memory = read_memory()
        return MemoryInfo(memory.free_bytes, memory.limit_bytes)

    def set_device(self, device_index: int) -> None:
        """Only index 0 exists. The number of threads stays as torch and the environment set it."""
        if device_index != 0:
            raise DeviceError(
                f"the host is device 0 alone; {device_index} was asked for",
                device_index=device_index,
            )

    def peak_memory_bytes(self) -> int:
        """What this process holds now; the kernel keeps no peak that can be reset without
        rights."""
        return resident_bytes()

    def reset_peak_memory(self) -> None:
        """Nothing is kept."""

    def empty_cache(self) -> None:
        """The allocator gives large pieces back by itself."""

    def synchronize(self) -> None:
        """Work is done when its call returns."""

    def new_stream(self) -> Stream:
        """A stream in name."""
        return _HostStream()

    @contextmanager
    def _nothing(self) -> Iterator[None]:
        yield

    def use_stream(self, stream: Stream) -> AbstractContextManager[None]:
        """All streams are one."""
        return self._nothing()

    def new_event(self) -> Event:
        """An event that has passed."""
        return _HostEvent()

    def empty_host(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Ordinary memory."""
        return torch.empty(tuple(shape), dtype=dtype)
