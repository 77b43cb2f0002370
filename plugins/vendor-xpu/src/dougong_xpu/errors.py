"""Errors of torch, Level Zero and oneCCL on this device, in the core's terms.

Torch raises its own kinds for a lack of memory. Everything else of the device comes as a
``RuntimeError`` with the runtime's code in its text, ``level_zero backend failed with error: 20
(UR_RESULT_ERROR_DEVICE_LOST)``; so the code's name is read, and nothing around it.
"""

from __future__ import annotations

import re

from dougong.contracts import (
    CommunicatorTimeout,
    DeviceError,
    DeviceLost,
    Fault,
    KernelFault,
    OutOfDeviceMemory,
    PeerLost,
)

_CODE = re.compile(r"\b(?:UR|PI|ZE)_(?:RESULT_)?ERROR_(\w+)")
_KINDS: tuple[tuple[str, type[DeviceError]], ...] = (
    ("OUT_OF_DEVICE_MEMORY", OutOfDeviceMemory),
    ("OUT_OF_RESOURCES", OutOfDeviceMemory),  # what the driver says where an allocation fails
    ("DEVICE_LOST", DeviceLost),
    ("DEVICE_NOT_AVAILABLE", DeviceLost),
    ("DEVICE_REQUIRES_RESET", DeviceLost),
    ("DEVICE_IN_LOW_POWER_STATE", DeviceLost),
    ("INVALID_KERNEL", KernelFault),
    ("INVALID_WORK", KernelFault),
    ("INVALID_GROUP", KernelFault),
    ("INVALID_GLOBAL", KernelFault),
    ("PROGRAM", KernelFault),
    ("MODULE", KernelFault),
)
_TEXTS: tuple[tuple[str, type[DeviceError]], ...] = (
    ("XPU out of memory", OutOfDeviceMemory),
    ("can NOT allocate memory block with size larger than", OutOfDeviceMemory),
    ("Watchdog caught collective operation timeout: WorkXCCL", CommunicatorTimeout),
)
_CCL = re.compile(r"\boneCCL\b|\bccl::", re.IGNORECASE)
_CCL_PEER = re.compile(r"connection|peer|socket|broken pipe", re.IGNORECASE)
_DEVICE = re.compile(r"\bGPU\s+(\d+)\b|\bxpu:(\d+)\b")


def classify(exc: BaseException) -> Fault | None:
    """What an exception of torch or of the vendor's libraries means; ``None``: not the device's.

    Kinds of torch are recognised by name, so that a process without torch can ask.
    """
    text = str(exc)
    if "OutOfMemoryError" in {kind.__name__ for kind in type(exc).__mro__}:
        return _fault(OutOfDeviceMemory, text)
    for known, kind in _TEXTS:
        if known in text:
            return _fault(kind, text)
    if code := _CODE.search(text):
        return _fault(_kind_of(code[1]), text)
    if _CCL.search(text):
        return _fault(PeerLost if _CCL_PEER.search(text) else DeviceError, text)
    return None


def _kind_of(code: str) -> type[DeviceError]:
    return next((kind for start, kind in _KINDS if code.startswith(start)), DeviceError)


def _fault(kind: type[DeviceError], text: str) -> Fault:
    message = text.partition("\n")[0]
    found = _DEVICE.search(message)
    return Fault(kind, message, int(found[1] or found[2]) if found else None)
