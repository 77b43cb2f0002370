"""Whose fault an exception is: the implementation's that was running, or the device's."""

from __future__ import annotations

from dougong.contracts import DeviceError, ImplementationError, KernelFault


def blames_implementation(exc: Exception) -> bool:
    """Whether ``exc`` speaks against the implementation out of which it came.

    It does not where the device failed or is full, nor where a failure already has its name.
    """
    if isinstance(exc, ImplementationError):
        return False
    if isinstance(exc, DeviceError):
        return isinstance(exc, KernelFault)
    # torch's own name for a full device, by name, since vendors derive theirs in several places.
    return not any(kind.__name__ == "OutOfMemoryError" for kind in type(exc).__mro__)


def reason_of(exc: BaseException) -> str:
    """Kind and message of an exception in one line."""
    text = " ".join(str(exc).split())
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__
