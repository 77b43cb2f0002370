"""The driver's errors in the core's terms.

Who runs a cluster acts on the kind: a lost device is taken out of service, a lost peer means that
another machine failed, a fault of a kernel is a bug. So the kind is read from the code that the
driver gives, and from nothing that changes with a message.
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

_KINDS: dict[int, type[DeviceError]] = {
    46: DeviceError,  # busy: another process owns it
    101: DeviceError,  # no such device
    700: DeviceLost,
    719: KernelFault,
}
_OTHER_ERRORS: tuple[tuple[str, type[DeviceError]], ...] = (
    ("simccl: timed out", CommunicatorTimeout),
    ("simccl: peer", PeerLost),
)
_DEVICE = re.compile(r"\bsim:(\d+)")


def classify(exc: BaseException) -> Fault | None:
    """What an exception of torch or of the device's library means; ``None``: not the device's.

    Torch raises two kinds of its own for any device: ``torch.AcceleratorError`` with the driver's
    code, and ``torch.OutOfMemoryError``. Both are recognised by name, so that a process without
    torch can ask.
    """
    names = {kind.__name__ for kind in type(exc).__mro__}
    if "OutOfMemoryError" in names:
        return _fault(OutOfDeviceMemory, exc)
    text = str(exc)
    for start, kind in _OTHER_ERRORS:
        if start in text:
            return _fault(kind, exc)
    if "AcceleratorError" in names:
        return _fault(_KINDS.get(getattr(exc, "error_code", 0), DeviceError), exc)
    return None


def _fault(kind: type[DeviceError], exc: BaseException) -> Fault:
    message = str(exc).partition("\n")[0]  # torch adds where in its own source it was raised
    found = _DEVICE.search(message)
    return Fault(kind, message, int(found[1]) if found else None)
