"""A step on a fake NPU: nothing of the host gets among the device's tensors, nothing waits.

In a process of its own, since torch has one place for a device that it does not know.
"""

from __future__ import annotations

import pytest
from dougong_conformance.ladder import own_process

from tests.rungs.fake_steps import COUNTS, TOKENS, Told, decoder_step, other_ops, steps_on_310p

FAULTS = {
    "ids": "cpu",
    "positions": "cpu",
    "slots": "cpu",
    "table": "cpu",
    "item": "wait",
    "mask": "mask",
    "dtype": "float32",
    "copy": "2 copies",
}


def all_at_once() -> tuple[dict[str, Told], dict[str, str]]:
    """Every step and every fault in one process."""
    steps = {
        "decoder": decoder_step(is_real_wheel=False),
        "310p": steps_on_310p(is_real_wheel=False),
        "others": other_ops(is_real_wheel=False),
    }
    return steps, {fault: _raised(fault) for fault in FAULTS}


def _raised(fault: str) -> str:
    try:
        told = decoder_step(is_real_wheel=False, fault=fault)
    except Exception as error:  # noqa: BLE001 - of any kind: that it is told is what counts
        return str(error)
    return f"{len(told.d2h)} copies to the host"


@pytest.fixture(scope="module")
def told() -> tuple[dict[str, Told], dict[str, str]]:
    found: tuple[dict[str, Told], dict[str, str]] = own_process.call(all_at_once)
    return found


def test_a_step_copies_its_tokens_and_nothing_else(
    told: tuple[dict[str, Told], dict[str, str]],
) -> None:
    step = told[0]["decoder"]
    assert step.d2h == ((len(COUNTS),),)
    assert step.h2d == ()
    assert step.ops == (
        "npu::npu_add_rms_norm",
        "npu::npu_fused_infer_attention_score",
        "npu::npu_mrope",
        "npu::npu_rms_norm",
        "npu::npu_scatter_pa_kv_cache",
        "npu::npu_swiglu",
    )


def test_no_other_op_of_the_plugin_copies_or_waits(
    told: tuple[dict[str, Told], dict[str, str]],
) -> None:
    for name in ("310p", "others"):
        assert (told[0][name].h2d, told[0][name].d2h) == ((), ())
    assert told[0]["others"].shape[0] == TOKENS
    assert len(told[0]["310p"].ops) == 4
    assert len(told[0]["others"].ops) >= 10


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_planted_fault_is_told(told: tuple[dict[str, Told], dict[str, str]], fault: str) -> None:
    assert FAULTS[fault] in told[1][fault]
