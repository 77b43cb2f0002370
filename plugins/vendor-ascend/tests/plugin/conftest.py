"""The vendor's ops over references, and a module in the place of ``torch.npu``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from dougong_conformance.ladder.stand_in import StandIn

from tests.plugin.npu_module import FakeNpu
from tests.references.stand_ins import stand_ins


@pytest.fixture(scope="package")
def npu_ops() -> Iterator[StandIn]:
    """The ops under the vendor's published schemas; what they compute is the references'."""
    with stand_ins() as made:
        yield made


@pytest.fixture
def npu(monkeypatch: pytest.MonkeyPatch) -> FakeNpu:
    """What a process finds as ``torch.npu``, a 910B2 with two devices.

    Only under that name: torch knows a device type ``npu`` once somebody registers it, for good.
    """
    module = FakeNpu()
    monkeypatch.setattr(torch, "npu", module, raising=False)
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    return module
