"""`DeviceRuntime` over what every torch device module offers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from dougong.contracts import DeviceRuntime, Event, MemoryInfo, Stream


class TorchDeviceRuntime(DeviceRuntime):
    """Serves any device type whose torch module has the usual functions.

    A vendor overrides what differs. Queries go to the device module, which torch finds by type.

    Args:
        device_type: As in `Platform.device_type`.
        pin_memory: Host buffers are page-locked.
    """

    def __init__(self, device_type: str, *, pin_memory: bool = True) -> None:
        self.device_type = device_type
        self._pin_memory = pin_memory
        self._index = 0

    @property
    def module(self) -> Any:
        """Torch's module of this device type; looked up at each use, since a vendor's import may
        register it late."""
        return torch.get_device_module(self.device_type)

    def device_count(self) -> int:
        """As the module counts."""
        return int(self.module.device_count())

    def device_name(self, device_index: int) -> str:
        """As the module names it."""
        return str(self.module.get_device_name(device_index))

    def device_uuid(self, device_index: int) -> str:
        """From the device's properties, where they have one."""
        properties = self.module.get_device_properties(device_index)
        return str(getattr(properties, "uuid", ""))

    def torch_device(self, device_index: int) -> torch.device:
        """``type:index``."""
        return torch.device(self.device_type, device_index)

    def memory_info(self, device_index: int) -> MemoryInfo:
        """As the module tells."""
        free, total = self.module.mem_get_info(device_index)
        return MemoryInfo(int(free), int(total))

    def set_device(self, device_index: int) -> None:
        """Make it current."""
        self.module.set_device(device_index)
        self._index = device_index

    def current_device(self) -> int:
        """The index last set."""
        return self._index

    def peak_memory_bytes(self) -> int:
        """Of torch's allocator."""
        return int(self.module.max_memory_allocated(self._index))

    def reset_peak_memory(self) -> None:
        """Of torch's allocator."""
        self.module.reset_peak_memory_stats(self._index)

    def empty_cache(self) -> None:
        """Of torch's allocator."""
        self.module.empty_cache()

    def synchronize(self) -> None:
        """The current device."""
        self.module.synchronize(self._index)

    def new_stream(self) -> Stream:
        """Torch's stream of this type."""
        stream: Stream = self.module.Stream(self._index)
        return stream

    @contextmanager
    def _within(self, stream: Any) -> Iterator[None]:
        with self.module.stream(stream):
            yield

    def use_stream(self, stream: Stream) -> AbstractContextManager[None]:
        """Torch's stream context."""
        return self._within(stream)

    def new_event(self) -> Event:
        """Torch's event of this type."""
        event: Event = self.module.Event()
        return event

    def seed(self, value: int) -> None:
        """Host and device generators."""
        torch.manual_seed(value)

    def inference_mode(self) -> AbstractContextManager[None]:
        """Torch's."""
        return torch.inference_mode()

    def empty_host(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Page-locked where that was asked for."""
        return torch.empty(tuple(shape), dtype=dtype, pin_memory=self._pin_memory)
