"""Errors of HIP, of torch over it and of RCCL, in the core's terms.

Who runs a cluster acts on the kind: a lost device is taken out of service, a lost peer means that
another machine failed, a fault of a kernel is a bug. HIP's code is read where torch gives it, its
name where torch prints it, and its words only where neither is there. A page fault of a kernel is
none of these: the runtime prints ``Memory access fault by GPU node-…`` and ends the process, which
the engine sees as the death of a worker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dougong.contracts import (
    CommunicatorTimeout,
    DeviceError,
    DeviceLost,
    Fault,
    KernelFault,
    OutOfDeviceMemory,
    PeerLost,
)

_KINDS: Mapping[int, type[DeviceError]] = {
    2: OutOfDeviceMemory,  # hipErrorOutOfMemory
    3: DeviceError,  # hipErrorNotInitialized
    98: KernelFault,  # hipErrorInvalidDeviceFunction
    100: DeviceError,  # hipErrorNoDevice
    101: DeviceError,  # hipErrorInvalidDevice
    200: KernelFault,  # hipErrorInvalidImage
    209: KernelFault,  # hipErrorNoBinaryForGpu
    214: DeviceLost,  # hipErrorECCNotCorrectable
    700: KernelFault,  # hipErrorIllegalAddress
    701: KernelFault,  # hipErrorLaunchOutOfResources
    702: KernelFault,  # hipErrorLaunchTimeOut
    709: DeviceLost,  # hipErrorContextIsDestroyed
    710: KernelFault,  # hipErrorAssert
    719: KernelFault,  # hipErrorLaunchFailure
}
_NAMES: Mapping[str, int] = {
    "hipErrorOutOfMemory": 2,
    "hipErrorMemoryAllocation": 2,  # its older name
    "hipErrorNotInitialized": 3,
    "hipErrorInvalidDeviceFunction": 98,
    "hipErrorNoDevice": 100,
    "hipErrorInvalidDevice": 101,
    "hipErrorInvalidImage": 200,
    "hipErrorNoBinaryForGpu": 209,
    "hipErrorECCNotCorrectable": 214,
    "hipErrorIllegalAddress": 700,
    "hipErrorLaunchOutOfResources": 701,
    "hipErrorLaunchTimeOut": 702,
    "hipErrorContextIsDestroyed": 709,
    "hipErrorAssert": 710,
    "hipErrorLaunchFailure": 719,
}
_WORDS: tuple[tuple[str, int], ...] = (
    ("no kernel image is available for execution on the device", 209),
    ("an illegal memory access was encountered", 700),
    ("unspecified launch failure", 719),
    ("no rocm-capable device is detected", 100),
    ("invalid device ordinal", 101),
    ("invalid device function", 98),
    ("out of memory", 2),
)
_COLLECTIVES: tuple[tuple[str, type[DeviceError]], ...] = (
    ("watchdog caught collective operation timeout", CommunicatorTimeout),
    ("nccl communicator was aborted", PeerLost),
    ("ncclremoteerror", PeerLost),
    ("remote process exited or there was a network error", PeerLost),
    ("connection closed by remote peer", PeerLost),
    ("unhandled system error", PeerLost),
    ("hsa_status_error_out_of_resources", OutOfDeviceMemory),
    ("hsa_status_error_exception", KernelFault),
)
_CODE_NAME = re.compile(r"\bhipError\w+")
_DEVICE = re.compile(r"\b(?:GPU|cuda:|device[= ])\s?(\d+)\b", re.IGNORECASE)
_IS_HIP = ("hip error", "hip out of memory", "cuda error", "hiperror")


def classify(exc: BaseException) -> Fault | None:
    """What an exception of torch, HIP or RCCL means; ``None``: not the device's.

    Classes are recognised by name, so that a process without torch can ask.
    """
    names = {kind.__name__ for kind in type(exc).__mro__}
    text = str(exc)
    if "OutOfMemoryError" in names:
        return _fault(OutOfDeviceMemory, text)
    lower = text.lower()
    for words, kind in _COLLECTIVES:
        if words in lower:
            return _fault(kind, text)
    is_hip = "AcceleratorError" in names or any(words in lower for words in _IS_HIP)
    if not is_hip:
        return None
    code = getattr(exc, "error_code", None)
    if not isinstance(code, int):
        code = _code_of(text)
    return _fault(_KINDS.get(code or 0, DeviceError), text)


def _code_of(text: str) -> int | None:
    for name in _CODE_NAME.findall(text):
        if name in _NAMES:
            return _NAMES[name]
    lower = text.lower()
    return next((code for words, code in _WORDS if words in lower), None)


def _fault(kind: type[DeviceError], text: str) -> Fault:
    message = text.partition("\n")[0]  # torch adds advice, and where in its source it was raised
    found = _DEVICE.search(message)
    return Fault(kind, message, int(found[1]) if found else None)
