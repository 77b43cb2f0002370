"""Whose fault an exception is."""

from __future__ import annotations

import pytest
import torch

from dougong.contracts import (
    DeviceLost,
    ImplementationError,
    KernelFault,
    OutOfDeviceMemory,
    UnsupportedError,
)
from dougong.ops.failures import blames_implementation, reason_of


class VendorOutOfMemoryError(torch.OutOfMemoryError): ...


@pytest.mark.parametrize(
    ("error", "is_its_fault"),
    [
        (RuntimeError("bad grid"), True),
        (UnsupportedError("hidden size 4"), True),
        (KernelFault("bad address"), True),
        (DeviceLost("gone"), False),
        (OutOfDeviceMemory("full"), False),
        (torch.OutOfMemoryError("full"), False),
        (VendorOutOfMemoryError("full"), False),
        (ImplementationError({"acme/x": "odd"}), False),
    ],
)
def test_a_device_that_fails_or_is_full_speaks_against_nobody(
    error: Exception, is_its_fault: bool
) -> None:
    assert blames_implementation(error) is is_its_fault


def test_a_reason_is_one_line() -> None:
    assert reason_of(ValueError("two\n  lines")) == "ValueError: two lines"
    assert reason_of(ValueError()) == "ValueError"
