"""Whether triton can be imported here, found out without importing it."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec


class TritonMissingError(ImportError):
    """A kernel was called where triton is not installed."""


@cache
def missing_triton() -> str | None:
    """Why no kernel can run here; ``None``: triton is installed. Asked once per process.

    Says nothing of a device or of a driver: those triton finds at the first call.
    """
    spec = find_spec("triton")
    if spec is not None and spec.origin is not None:  # a folder without code has no origin
        return None
    return (
        "The Python package triton is not installed, so no Triton kernel can be compiled. Install "
        "triton, or the build of it that your device's vendor ships under this import name"
    )


def require_triton() -> None:
    """Do nothing where triton is installed.

    Raises:
        TritonMissingError: It is not.
    """
    if (reason := missing_triton()) is not None:
        raise TritonMissingError(reason)
