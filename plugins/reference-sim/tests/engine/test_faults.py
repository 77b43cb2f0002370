"""A device that fails leaves the engine with name, place and step; another engine then works."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dougong import LLM, SamplingParams
from dougong.contracts import DeviceError, DeviceLost, KernelFault, OutOfDeviceMemory
from dougong.errors import EngineDeadError

from dougong_sim.device import control
from tests.engine.checkpoints import prompt_of
from tests.engine.conftest import OPTIONS

PARAMS = SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True)


@pytest.fixture(autouse=True)
def _reset() -> Iterator[None]:
    yield
    for index in (0, 3):
        control.reset(index)


def start(tiny: str, **options: object) -> LLM:
    """Without graphs: a step allocates and launches."""
    return LLM(tiny, platform="sim", num_kv_blocks=12, enforce_eager=True, **OPTIONS | options)


def answer(llm: LLM) -> list[int]:
    (output,) = llm.generate(prompt_token_ids=[prompt_of(9)], sampling_params=PARAMS)
    return list(output.outputs[0].token_ids)


def fault_of_a_step(llm: LLM) -> DeviceError:
    with pytest.raises(EngineDeadError) as caught:
        answer(llm)
    assert isinstance(caught.value.__cause__, DeviceError)
    return caught.value.__cause__


def test_memory_that_runs_out_at_the_start(tiny: str) -> None:
    limit = control.memory_limit()
    control.set_memory_limit(300_000)  # below the weights; the driver told planning otherwise
    try:
        with pytest.raises(OutOfDeviceMemory, match="out of memory") as caught:
            start(tiny)
    finally:
        control.set_memory_limit(limit)
    assert (caught.value.device_index, caught.value.rank) == (0, 0)
    with start(tiny) as llm:
        assert len(answer(llm)) == 4


@pytest.mark.parametrize("mode", ["eager", "lazy", "thread"])
@pytest.mark.parametrize(
    ("fault", "op", "kind"),
    [
        ("oom", "", OutOfDeviceMemory),
        ("lost", "bmm", DeviceLost),
        ("error", "mm", KernelFault),
    ],
)
def test_a_fault_in_a_step_is_named_and_a_later_engine_works(
    fault: control.FaultKind, op: str, kind: type[DeviceError], mode: str, tiny: str
) -> None:
    control.set_mode(mode)  # type: ignore[arg-type]  # one of the three
    with start(tiny) as llm:
        expected = answer(llm)
        control.inject(fault, after=5, op=op)
        error = fault_of_a_step(llm)
        assert type(error) is kind
        assert (error.device_index, error.rank) == (0, 0)
        assert error.step_id is not None
        assert error.step_id >= 4
    control.reset(0)
    with start(tiny) as llm:
        assert answer(llm) == expected


def test_the_device_of_the_rank_is_named(tiny: str) -> None:
    with start(tiny, devices="3") as llm:
        control.inject("error", device=3, op="mm")
        assert fault_of_a_step(llm).device_index == 3
    assert not control.has_context(5)


def test_a_late_error_at_the_start_is_held_against_the_kernel_that_failed(tiny: str) -> None:
    control.inject("error", op="argmax", message="bad instruction", is_sticky=False)
    with start(tiny) as llm:
        (fallback,) = [one for one in llm.plan.fallbacks if "greedy_sample" in one.subject]
    assert "bad instruction" in str(fallback)
