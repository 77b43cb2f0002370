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

from dougong_rocm.errors import classify


class AcceleratorError(RuntimeError):
    """Torch's, by name."""

    def __init__(self, message: str, error_code: int | None = None) -> None:
        super().__init__(message)
        if error_code is not None:
            self.error_code = error_code


class OutOfMemoryError(RuntimeError):
    """Torch's, by name."""


class DistBackendError(RuntimeError):
    """Torch's, by name."""


ADVICE = (
    "\nSearch for `{}' in https://rocm.docs.amd.com/projects/HIP/en/latest/index.html for more "
    "information.\nFor debugging consider passing AMD_SERIALIZE_KERNEL=3"
)
ILLEGAL = "HIP error: an illegal memory access was encountered"


@pytest.mark.parametrize(
    ("error", "kind", "device"),
    [
        (
            OutOfMemoryError("HIP out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total"),
            OutOfDeviceMemory,
            1,
        ),
        (RuntimeError("HIP error: out of memory" + ADVICE.format("hipErrorOutOfMemory")),
         OutOfDeviceMemory, None),
        (AcceleratorError(ILLEGAL, 700), KernelFault, None),
        (AcceleratorError(ILLEGAL + ADVICE.format("hipErrorIllegalAddress")), KernelFault, None),
        (RuntimeError(ILLEGAL), KernelFault, None),
        (AcceleratorError("CUDA error: unspecified launch failure", 719), KernelFault, None),
        (AcceleratorError("HIP error: uncorrectable ECC error encountered", 214), DeviceLost, None),
        (RuntimeError("HIP error: no ROCm-capable device is detected"), DeviceError, None),
        (
            RuntimeError("HIP error: invalid device ordinal" +
            ADVICE.format("hipErrorInvalidDevice")), DeviceError, None,
        ),
        (RuntimeError("HIP error: no kernel image is available for execution on the device"),
         KernelFault, None),
        (AcceleratorError("HIP error: something new", 4711), DeviceError, None),
        (
            DistBackendError(
                "NCCL error in: ../ProcessGroupNCCL.cpp:1704, remote process exited or there was a "
                "network error, NCCL version 2.21.5"
            ),
            PeerLost,
            None,
        ),
        (
            DistBackendError(
                "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, "
                "OpType=ALLREDUCE) ran for 240012 milliseconds before timing out."
            ),
            CommunicatorTimeout,
            None,
        ),
        (RuntimeError("HSA_STATUS_ERROR_OUT_OF_RESOURCES: the runtime failed"),
         OutOfDeviceMemory, None),
    ],
)  # fmt: skip
def test_a_text_is_named(error: Exception, kind: type[DeviceError], device: int | None) -> None:
    fault = classify(error)
    assert fault is not None
    assert fault.kind is kind
    assert fault.device_index == device
    assert "\n" not in fault.message


@pytest.mark.parametrize(
    "error",
    [
        ValueError("shapes differ"),
        RuntimeError("The size of tensor a (3) must match the size of tensor b (4)"),
        MemoryError("out of memory"),
        KeyError("hip"),
    ],
)
def test_what_is_not_the_devices_is_left_alone(error: Exception) -> None:
    assert classify(error) is None
