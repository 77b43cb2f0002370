"""Devices that work by themselves, and well ones after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dougong_sim.device import control, load


@pytest.fixture(autouse=True)
def devices() -> Iterator[None]:
    load()
    control.set_mode("thread")
    yield
    for index in range(4):
        control.reset(index)
    control.set_mode("lazy")
    control.clear_counters()
