"""Every call the core makes to a device outside tensor arithmetic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """Memory of one device, in bytes."""

    free_bytes: int
    total_bytes: int


class Event(Protocol):
    """A point in a stream's work."""

    def record(self, stream: Stream | None = None) -> None:
        """Mark the work enqueued so far on ``stream`` (``None``: the current one)."""
        ...

    def query(self) -> bool:
        """Whether the marked work has finished; never blocks."""
        ...

    def synchronize(self) -> None:
        """Block the host until the marked work has finished; a late kernel error surfaces here."""
        ...


class Stream(Protocol):
    """A queue of device work."""

    def wait_event(self, event: Event) -> None:
        """Later work of this stream starts after ``event``; the host does not block."""
        ...

    def synchronize(self) -> None:
        """Block the host until the stream is empty."""
        ...


class DeviceRuntime(ABC):
    """The device as the core sees it.

    Methods that take ``device_index`` and those of `device_count` create no device context. Before
    `set_device` no other method is called. Indices count within the platform, after masks, from 0.
    ``dougong.reference.TorchDeviceRuntime`` implements all of it for any torch device.
    """

    @abstractmethod
    def device_count(self) -> int:
        """Devices this process may use; 0 when there is none."""

    @abstractmethod
    def device_name(self, device_index: int) -> str:
        """Name as the vendor prints it."""

    @abstractmethod
    def device_uuid(self, device_index: int) -> str:
        """Identity that survives a restart; empty where the vendor has none."""

    @abstractmethod
    def torch_device(self, device_index: int) -> torch.device:
        """The torch device of an index."""

    @abstractmethod
    def memory_info(self, device_index: int) -> MemoryInfo:
        """Free and total memory. A quota (container, partition) counts as the total."""

    @abstractmethod
    def set_device(self, device_index: int) -> None:
        """Make it current for this thread; may create the context.

        Raises:
            DeviceError: The device cannot be opened.
        """

    @abstractmethod
    def current_device(self) -> int:
        """Index last set; 0 before."""

    @abstractmethod
    def peak_memory_bytes(self) -> int:
        """Most bytes in use by this process on the current device since the last reset."""

    @abstractmethod
    def reset_peak_memory(self) -> None:
        """Start a new peak from what is in use now."""

    @abstractmethod
    def empty_cache(self) -> None:
        """Give unused cached memory of the current device back to the system."""

    @abstractmethod
    def synchronize(self) -> None:
        """Block until the current device is idle.

        Raises:
            Exception: A late kernel error, as the vendor raises it; `Platform.classify_error`
                names it.
        """

    @abstractmethod
    def new_stream(self) -> Stream:
        """A new stream on the current device."""

    @abstractmethod
    def use_stream(self, stream: Stream) -> AbstractContextManager[None]:
        """Work inside the block goes to ``stream``; the previous one is restored after it."""

    @abstractmethod
    def new_event(self) -> Event:
        """A new event of the current device."""

    @abstractmethod
    def seed(self, value: int) -> None:
        """Seed the generators of the host and of the current device."""

    @abstractmethod
    def inference_mode(self) -> AbstractContextManager[None]:
        """No gradients inside the block; what a platform needs beside that, too."""

    @abstractmethod
    def empty_host(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A host tensor fit for copies to and from the device: pinned where that helps.

        Contents are undefined. The caller keeps it alive until its copies are done.
        """


@runtime_checkable
class MemoryPools(Protocol):
    """Optional: device memory in tagged pools that can be given back and taken again (sleep).

    The core does not call it in contract 1.0; a vendor's own worker may.
    """

    def pool(self, tag: str) -> AbstractContextManager[None]:
        """Allocations inside the block belong to ``tag``."""
        ...

    def release(self, tag: str) -> None:
        """Give the pool's physical memory back; addresses stay valid, contents are lost."""
        ...

    def restore(self, tag: str) -> None:
        """Back the pool with memory again."""
        ...


@runtime_checkable
class Profiler(Protocol):
    """Optional: the vendor's own profiler."""

    def start(self, folder: str) -> None:
        """Begin to record into ``folder``."""
        ...

    def stop(self) -> None:
        """End and write the record."""
        ...
