"""Every call to vllm-xpu-kernels on a fake `xpu`, by rules stricter than torch's own.

Schemas are the published ones, and the functions behind them are `fakes`: so this is L0 at run
time and shows neither the vendor's own shapes nor its numbers. The same runs over the wheel's own
schemas in `lane/test_l1.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from dougong_conformance.ladder.fake_device import FakeDevice, fake_device
from dougong_conformance.ladder.stand_in import define

from tests.rungs.fakes import FAKES, counted
from tests.rungs.faults import FAULTS
from tests.rungs.published import KERNELS, ops_with_tensors
from tests.rungs.scenarios import SCENARIOS, attention_step


@pytest.fixture
def calls() -> Iterator[Counter[str]]:
    """Ops that were reached; the published schemas are registered meanwhile."""
    made: Counter[str] = Counter()
    with define(KERNELS, {}, fakes=counted(made)):
        yield made


@pytest.fixture
def fake(calls: Counter[str]) -> Iterator[FakeDevice]:
    with fake_device("xpu") as made:
        yield made


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_part_of_the_plugin_runs_without_a_wait_or_a_copy_to_the_host(
    name: str, fake: FakeDevice
) -> None:
    SCENARIOS[name](fake.device)
    assert fake.d2h == []


def test_a_step_of_attention_copies_nothing_to_the_device_that_the_core_did_not(
    fake: FakeDevice,
) -> None:
    layer, q, k, v, common = attention_step(fake.device)
    fake.forget()
    layer.attend(common, q, k, v)
    assert (fake.h2d, fake.d2h) == ([], [])


def test_the_parts_reach_every_op_that_the_plugin_calls(
    calls: Counter[str], fake: FakeDevice
) -> None:
    for scenario in SCENARIOS.values():
        scenario(fake.device)
    assert ops_with_tensors() == FAKES.keys()
    assert calls.keys() == FAKES.keys()


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_caught(name: str, fake: FakeDevice) -> None:
    fault = FAULTS[name]
    with pytest.raises(fault.error, match=fault.message):
        fault.run(fake.device)
