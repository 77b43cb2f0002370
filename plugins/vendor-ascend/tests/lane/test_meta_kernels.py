"""L2: the vendor's own meta kernels take the plugin's shapes and dtypes on a fake NPU."""

from __future__ import annotations

import pytest
from dougong_conformance.ladder import own_process

from tests.lane.shown import shows
from tests.references.fakes import HAS_OWN_FAKE
from tests.references.stand_ins import golden
from tests.rungs.fake_steps import COUNTS, STEPS, Told, decoder_step
from tests.rungs.test_fake_npu import FAULTS
from tests.rungs.vendor_calls import of_the_plugin

pytestmark = pytest.mark.lane
_NO_LIMITS = frozenset({"dtype"})
"""Faults that only the documentation forbids: the meta kernels give shapes and check little."""


def in_one_process() -> tuple[dict[str, Told], dict[str, str]]:
    """Every step and every fault, by the wheel's meta kernels."""
    steps = {name: step(is_real_wheel=True) for name, step in STEPS.items()}
    return steps, {fault: _raised(fault) for fault in FAULTS}


def _raised(fault: str) -> str:
    try:
        told = decoder_step(is_real_wheel=True, fault=fault)
    except Exception as error:  # noqa: BLE001 - of any kind: that it is told is what counts
        return str(error)
    return f"{len(told.d2h)} copies to the host"


@pytest.fixture(scope="module")
def told() -> tuple[dict[str, Told], dict[str, str]]:
    found: tuple[dict[str, Told], dict[str, str]] = own_process.call(in_one_process)
    return found


def test_the_meta_kernels_take_every_op_of_the_plugin(
    told: tuple[dict[str, Told], dict[str, str]],
) -> None:
    with shows("L2", "the wheel's meta kernels take the plugin's shapes") as said:
        steps = told[0]
        # One op of the wheel's is made of another with an underscore.
        ran = {op.replace("npu::_", "npu::") for step in steps.values() for op in step.ops}
        by_wheel = {op for op in ran if op in golden().with_meta}
        said.what = (
            f"{len(by_wheel)} vendor ops ran by the meta kernels of torch_npu 2.13.0 on a fake "
            f"npu, {len(ran - by_wheel)} that have none by own fakes; one copy to the host per "
            "step, none to the device, no wait"
        )
        said.details = {"meta": sorted(by_wheel), "own": sorted(ran - by_wheel)}
        called = {call.op for call in of_the_plugin() if not call.is_question}
        assert ran - by_wheel <= HAS_OWN_FAKE
        assert called == ran
        assert steps["decoder"].d2h == ((len(COUNTS),),)
        assert all(step.h2d == () for step in steps.values())
        assert all(step.d2h == () for name, step in steps.items() if name != "decoder")


@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - _NO_LIMITS))
def test_a_planted_fault_is_told(told: tuple[dict[str, Told], dict[str, str]], fault: str) -> None:
    assert FAULTS[fault] in told[1][fault]
