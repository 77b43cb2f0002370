"""The vendor's torch_npu, whose CL runtime is the double."""

from __future__ import annotations

from typing import Any

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def npu() -> Any:
    """Torch's module of the device; as this environment was prepared, there is one."""
    module: Any = torch.get_device_module("npu")
    assert module.is_available(), "tools.prepare_lane was not run in this environment"
    module.set_device(0)
    return module
