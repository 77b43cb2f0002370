"""L1: the wheel's own schemas, in torch's dispatcher, accept every call of the plugin.

The wheel has no meta kernels, so what stands behind the schemas are `fakes` of our own: this is L1
and not L2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from dougong_conformance.ladder.fake_device import FakeDevice, fake_device
from dougong_conformance.ladder.stand_in import define

from tests.rungs.fakes import FAKES, counted
from tests.rungs.faults import FAULTS
from tests.rungs.published import KERNELS, ops_with_tensors
from tests.rungs.scenarios import SCENARIOS
from tests.shown import shows

pytestmark = pytest.mark.lane


@pytest.fixture
def calls(kernels: Path) -> Iterator[Counter[str]]:
    """Ops that were reached. Nothing but fakes is registered: the schemas are the wheel's."""
    made: Counter[str] = Counter()
    with define(KERNELS, {}, fakes=counted(made)):
        yield made


@pytest.fixture
def fake(calls: Counter[str]) -> Iterator[FakeDevice]:
    with fake_device("xpu") as made:
        yield made


def test_the_wheel_has_kernels_for_the_device_and_none_for_meta(kernels: Path) -> None:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    assert all(has(op, "XPU") for op in FAKES)
    assert not any(has(op, "Meta") for op in KERNELS.schemas)


def test_the_dispatcher_takes_every_call(calls: Counter[str], fake: FakeDevice) -> None:
    what = "the real schemas of vllm-xpu-kernels take the plugin's calls on a fake xpu"
    with shows("L1", what, "xpu") as said:
        for scenario in SCENARIOS.values():
            scenario(fake.device)
        said.details["calls"] = dict(sorted(calls.items()))
        said.what = (
            f"torch's dispatcher, with the real schemas of vllm-xpu-kernels, takes {calls.total()} "
            f"calls of {len(calls)} ops on a fake xpu; no copy to the host; the fakes are our own"
        )
        assert calls.keys() == FAKES.keys() == ops_with_tensors()
        assert fake.d2h == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_caught(name: str, fake: FakeDevice) -> None:
    fault = FAULTS[name]
    with pytest.raises(fault.error, match=fault.message):
        fault.run(fake.device)
