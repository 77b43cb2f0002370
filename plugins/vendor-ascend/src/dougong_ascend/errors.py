"""The vendor's errors in the core's terms.

torch-npu raises plain ``RuntimeError`` for almost everything, with a code of the runtime or of the
op library in its text, so the kind is read from that code. HCCL has codes of letters (``EI0002``).
Codes of the same hundred thousands that are not listed are the device's, without a kind of their
own.
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

Kind = type[DeviceError]

CODES: Mapping[int, tuple[Kind, str]] = {
    # Asked wrongly, or at a wrong time.
    107001: (DeviceError, "no such device"),
    107002: (DeviceError, "no context: the device was not set in this thread"),
    107003: (DeviceError, "a stream of another context"),
    107022: (DeviceError, "the device's work was aborted, after an earlier error"),
    107030: (KernelFault, "a copy from the host, or a wait, inside a capture"),
    # Something ran out.
    207001: (OutOfDeviceMemory, "memory allocation"),
    207004: (DeviceError, "the device is not available"),
    207008: (DeviceError, "no stream is left: capture fewer sizes"),
    207018: (OutOfDeviceMemory, "device memory is used up"),
    # The device failed.
    507000: (DeviceError, "internal error of the runtime"),
    507010: (DeviceLost, "the task scheduler's heartbeat was lost"),
    507011: (KernelFault, "execution of a captured model failed"),
    507014: (KernelFault, "AI core timeout"),
    507015: (KernelFault, "AI core exception"),
    507017: (KernelFault, "AI CPU timeout"),
    507018: (KernelFault, "AI CPU exception"),
    507034: (KernelFault, "vector core timeout"),
    507035: (KernelFault, "vector core exception"),
    507046: (DeviceError, "a wait for a stream timed out"),
    507053: (DeviceLost, "uncorrectable memory error"),
    507054: (DeviceLost, "multi-bit error of the HBM"),
    507055: (DeviceLost, "suspected memory error"),
    507056: (DeviceLost, "a link between devices failed"),
    507057: (PeerLost, "suspected error of a remote device"),
    507899: (DeviceError, "internal error of the driver"),
    507901: (DeviceLost, "the connection to the device is closed"),
    # An op refused its arguments.
    161002: (KernelFault, "an op refused its arguments"),
    561002: (KernelFault, "an op found no way to tile these arguments"),
}
"""Code → kind, and what it means."""

_CODE = re.compile(r"error code(?:\s+is|:)?\s*:?\s*(\d{6})\b", re.IGNORECASE)
_RUNTIME_CODES = (range(107000, 108000), range(207000, 208000), range(507000, 508000))
_OP_CODES = (range(161000, 162000), range(361000, 362000), range(561000, 562000))

_Words = tuple[tuple[re.Pattern[str], Kind], ...]
# These say more than a code of the runtime beside them: that the device waited in vain.
_BEFORE_CODES: _Words = (
    (re.compile(r"NPU out of memory"), OutOfDeviceMemory),
    # EI0002: no signal came from a peer; EI0006: no socket of a peer answered.
    (re.compile(r"\bEI000[26]\b"), CommunicatorTimeout),
    (re.compile(r"Watchdog caught collective operation timeout"), CommunicatorTimeout),
    (re.compile(r"HCCL function error.*error code is 9\b", re.DOTALL), CommunicatorTimeout),
)
_AFTER_CODES: _Words = (
    (re.compile(r"HCCL function error"), DeviceError),
    (re.compile(r"not in libopapi\.so"), KernelFault),
    (re.compile(r"NPU function error|NPU error"), DeviceError),
    (re.compile(r"\bERR\d{5} (?:PTA|OPS|DIST|GRAPH)\b"), DeviceError),
)
_DEVICE = re.compile(r"\bDevice:(\d+)\b|\bnpu:(\d+)\b|\bNPU (\d+);")


def classify(exc: BaseException) -> Fault | None:
    """What an exception of torch or torch-npu means; ``None``: not the device's.

    ``torch.OutOfMemoryError`` is recognised by name, so that a process without torch can ask.
    """
    if "OutOfMemoryError" in {kind.__name__ for kind in type(exc).__mro__}:
        return _fault(OutOfDeviceMemory, exc, "")
    text = str(exc)
    if kind := _kind_by_words(_BEFORE_CODES, text):
        return _fault(kind, exc, "")
    if found := _CODE.search(text):
        code = int(found[1])
        if code in CODES:
            kind, meaning = CODES[code]
            return _fault(kind, exc, f"{code}, {meaning}: ")
        if any(code in codes for codes in _OP_CODES):
            return _fault(KernelFault, exc, "")
        if any(code in codes for codes in _RUNTIME_CODES):
            return _fault(DeviceError, exc, "")
    if kind := _kind_by_words(_AFTER_CODES, text):
        return _fault(kind, exc, "")
    return None


def _kind_by_words(words: _Words, text: str) -> Kind | None:
    return next((kind for pattern, kind in words if pattern.search(text)), None)


def _fault(kind: Kind, exc: BaseException, prefix: str) -> Fault:
    text = str(exc)
    found = _DEVICE.search(text)
    index = next((int(group) for group in found.groups() if group), None) if found else None
    return Fault(kind, prefix + text.partition("\n")[0], index)
