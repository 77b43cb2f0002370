"""Texts that torch, Level Zero and oneCCL were seen to raise, each with its kind."""

from __future__ import annotations

import pytest
from dougong.contracts import (
    CommunicatorTimeout,
    DeviceError,
    DeviceLost,
    KernelFault,
    OutOfDeviceMemory,
    PeerLost,
)

from dougong_xpu.platform import XpuPlatform


class OutOfMemoryError(RuntimeError):
    """As torch names its own."""


UR = "level_zero backend failed with error: "
SEEN: tuple[tuple[Exception, type[DeviceError], int | None], ...] = (
    (
        OutOfMemoryError(
            "XPU out of memory. Tried to allocate 4.66 GiB. GPU 0 has a total capacity of 5.65 GiB"
        ),
        OutOfDeviceMemory,
        0,
    ),
    (
        RuntimeError(
            "XPU out of memory. Tried to allocate 1.71 GiB (GPU 1; 15.56 GiB total capacity)"
        ),
        OutOfDeviceMemory,
        1,
    ),
    (
        RuntimeError(
            "Current platform can NOT allocate memory block with size larger than 4GB! Tried to "
            "allocate 6.85 GiB (GPU  0; 15.56 GiB total capacity)"
        ),
        OutOfDeviceMemory,
        0,
    ),
    (RuntimeError(f"{UR}39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"), OutOfDeviceMemory, None),
    (RuntimeError(f"{UR}40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)"), OutOfDeviceMemory, None),
    (RuntimeError(f"{UR}20 (UR_RESULT_ERROR_DEVICE_LOST)"), DeviceLost, None),
    (RuntimeError(f"{UR}27 (UR_RESULT_ERROR_INVALID_KERNEL_NAME)"), KernelFault, None),
    (RuntimeError(f"{UR}17 (UR_RESULT_ERROR_PROGRAM_BUILD_FAILURE)"), KernelFault, None),
    (RuntimeError(f"{UR}2147483646 (UR_RESULT_ERROR_UNKNOWN)"), DeviceError, None),
    (
        RuntimeError("Native API failed. Native API returns: -2 (PI_ERROR_DEVICE_NOT_AVAILABLE)"),
        DeviceLost,
        None,
    ),
    (
        RuntimeError("Watchdog caught collective operation timeout: WorkXCCL(SeqNum=3) ran for"),
        CommunicatorTimeout,
        None,
    ),
    (RuntimeError("oneCCL: atl_ofi: connection refused by peer 1"), PeerLost, None),
    (RuntimeError("oneCCL: ze_call: EXCEPTION: ze error"), DeviceError, None),
)


@pytest.mark.parametrize(("exc", "kind", "device_index"), SEEN, ids=lambda one: str(one)[:40])
def test_an_error_is_named(
    exc: Exception, kind: type[DeviceError], device_index: int | None
) -> None:
    fault = XpuPlatform().classify_error(exc)
    assert fault is not None
    assert fault.kind is kind
    assert fault.device_index == device_index
    assert "\n" not in fault.message


@pytest.mark.parametrize(
    "exc",
    [
        ValueError("level of zero interest"),
        RuntimeError("Paged decode kernel tuple not compiled for this configuration."),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
    ],
)
def test_what_is_not_the_device_s_is_left_alone(exc: Exception) -> None:
    assert XpuPlatform().classify_error(exc) is None
