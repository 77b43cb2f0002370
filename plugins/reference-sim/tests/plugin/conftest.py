"""The device is loaded, and well before each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from dougong_sim.device import control, load
from dougong_sim.device import torch_module as sim


@pytest.fixture(autouse=True)
def device() -> Iterator[torch.device]:
    """Device 0, in lazy mode: nothing runs before somebody waits, so a missing wait shows."""
    load()
    limit = control.memory_limit()
    control.set_mode("lazy")
    control.clear_counters()
    torch.manual_seed(0)
    yield torch.device("sim", 0)
    for index in range(sim.device_count()):
        control.reset(index)
    control.set_mode("lazy")
    control.set_memory_limit(limit)
