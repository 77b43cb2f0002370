"""Loads the device for this process, and leaves it as new after each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch

from dougong_sim import device
from dougong_sim.device import control
from dougong_sim.device import torch_module as sim
from dougong_sim.device.environment import Mode
from dougong_sim.device.loading import declared_ops

for _name in [name for name in os.environ if name.startswith("SIM_")]:
    del os.environ[_name]  # no setting of whoever runs the tests reaches them
device.load()


# The tests of the device want more of it than the core does.
TESTED_OPS = (
    "equal",
    "exponential_",
    "index",
    "index_copy",
    "masked_select",
    "multinomial",
    "nonzero",
    "normal_",
    "repeat_interleave",
    "threshold_backward",
)


class Timing(NamedTuple):
    """When work runs."""

    mode: Mode
    delay_us: int = 0

    def __str__(self) -> str:
        return self.mode + (f"+{self.delay_us}us" if self.delay_us else "")


EVERY_MODE = (Timing("eager"), Timing("lazy"), Timing("thread"), Timing("thread", 2000))
# Where work is still pending when the call returns, so that a missing wait shows each time. The
# delay costs no time: work that is waited for starts at once.
LATE_MODES = (Timing("lazy"), Timing("thread", 60_000_000))


@pytest.fixture(params=EVERY_MODE, ids=str)
def any_mode(request: pytest.FixtureRequest) -> Timing:
    """Runs the test in every mode."""
    timing: Timing = request.param
    control.set_mode(*timing)
    return timing


@pytest.fixture(params=LATE_MODES, ids=str)
def late_mode(request: pytest.FixtureRequest) -> Timing:
    """Runs the test in the modes that show races each time."""
    timing: Timing = request.param
    control.set_mode(*timing)
    return timing


@pytest.fixture(autouse=True)
def _new_device() -> Iterator[None]:
    limit = control.memory_limit()
    control.set_mode("lazy")
    control.declare_ops([*declared_ops(), *(f"aten::{name}" for name in TESTED_OPS)])
    control.clear_counters()
    torch.manual_seed(0)
    yield
    for index in range(sim.device_count()):
        control.reset(index)
    control.set_mode("lazy")
    control.set_strict(True)
    control.declare_ops(declared_ops())
    control.set_sync_policy("count")
    control.set_memory_limit(limit)
    sim.set_device(0)
    sim.set_stream(sim.default_stream(0))
