"""A platform without a device: the whole engine runs on it, and nothing is computed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from dougong.contracts import (
    Claims,
    DeviceFacts,
    DeviceRuntime,
    Event,
    Fault,
    KernelFault,
    MemoryInfo,
    Platform,
    Stream,
)

if TYPE_CHECKING:
    import torch

MEMORY_BYTES = 2**30


class NullDeviceError(RuntimeError):
    """What the null vendor raises when its device fails."""


class NullPlatform(Platform):
    """Claims little, opens nothing. What its worker emits stands in the checkpoint's config."""

    name = "null"
    device_type = "cpu"
    dispatch_key = "CPU"
    dist_backend = ""
    visible_devices_env = ""

    def __init__(self) -> None:
        """No state but the runtime's."""
        self._runtime = NullRuntime()

    def claims(self, arch: str) -> Claims:
        """Two dtypes and four block sizes."""
        return Claims(
            arch=arch,
            is_generic=arch != "null1",
            dtypes=("float32", "bfloat16"),
            kv_dtypes=("float32", "bfloat16"),
            kv_block_sizes=(16, 4, 8, 32),
        )

    def facts(self, device_index: int) -> DeviceFacts:
        """One gibibyte of nothing."""
        return DeviceFacts(
            device_index=device_index,
            name="Null",
            arch="null1",
            memory_total_bytes=MEMORY_BYTES,
            memory_free_bytes=MEMORY_BYTES,
        )

    @property
    def facts_open_context(self) -> bool:
        """There is no context."""
        return False

    @property
    def runtime(self) -> DeviceRuntime:
        """Answers for a device that is not there."""
        return self._runtime

    def get_worker_cls(self) -> str:
        """The scripted worker."""
        return "dougong.testing.null_worker:NullWorker"

    def get_punica_wrapper(self) -> str | None:
        """None: nothing is computed, so nothing can be added to it."""
        return None

    def classify_error(self, exc: BaseException) -> Fault | None:
        """Its own error is a kernel's fault."""
        if isinstance(exc, NullDeviceError):
            return Fault(KernelFault, f"the null device failed: {exc}")
        return None


class _Event:
    def record(self, stream: Stream | None = None) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


class _Stream:
    def wait_event(self, event: Event) -> None:
        pass

    def synchronize(self) -> None:
        pass


class NullRuntime(DeviceRuntime):
    """A device whose every call succeeds at once."""

    def device_count(self) -> int:
        """One."""
        return 1

    def device_name(self, device_index: int) -> str:
        """See `DeviceRuntime`."""
        return "Null"

    def device_uuid(self, device_index: int) -> str:
        """None."""
        return ""

    def torch_device(self, device_index: int) -> torch.device:
        """The host."""
        import torch

        return torch.device("cpu")

    def memory_info(self, device_index: int) -> MemoryInfo:
        """All of it free."""
        return MemoryInfo(MEMORY_BYTES, MEMORY_BYTES)

    def set_device(self, device_index: int) -> None:
        """Nothing to set."""

    def current_device(self) -> int:
        """The only one."""
        return 0

    def peak_memory_bytes(self) -> int:
        """Nothing is ever used."""
        return 0

    def reset_peak_memory(self) -> None:
        """Nothing to reset."""

    def empty_cache(self) -> None:
        """Nothing to empty."""

    def synchronize(self) -> None:
        """Always idle."""

    def new_stream(self) -> Stream:
        """A stream without work."""
        return _Stream()

    def use_stream(self, stream: Stream) -> AbstractContextManager[None]:
        """No effect."""
        return nullcontext()

    def new_event(self) -> Event:
        """An event that has happened."""
        return _Event()

    def seed(self, value: int) -> None:
        """Nothing draws."""

    def inference_mode(self) -> AbstractContextManager[None]:
        """No effect."""
        return nullcontext()

    def empty_host(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A plain host tensor."""
        import torch

        return torch.empty(tuple(shape), dtype=dtype)
