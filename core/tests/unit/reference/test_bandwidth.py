from __future__ import annotations

import pytest

from dougong.contracts import DeviceError, MemoryInfo
from dougong.cpu.runtime import CpuDeviceRuntime
from dougong.reference.bandwidth import measure_bandwidth


class _Small(CpuDeviceRuntime):
    """Little memory is free, so that little is copied."""

    def memory_info(self, device_index: int) -> MemoryInfo:
        return MemoryInfo(free_bytes=8 << 20, total_bytes=16 << 20)


def test_copies_give_a_rate() -> None:
    assert measure_bandwidth(_Small(), 0) > 1e6


def test_a_device_with_no_memory_left_is_measured_on_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_Small, "memory_info", lambda self, index: MemoryInfo(0, 1))
    assert measure_bandwidth(_Small(), 0) > 0


def test_a_device_that_cannot_be_set_is_not_measured() -> None:
    with pytest.raises(DeviceError):
        measure_bandwidth(_Small(), 7)
