"""SmolLM2-135M from start to end on the device: the tokens that `transformers` found, no waits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from dougong import LLM, SamplingParams

from dougong_sim.device import control
from dougong_sim.device.environment import Mode
from tests.engine.checkpoints import GREEDY_FIXTURE
from tests.engine.conftest import MODES, open_on_host

CASES: list[dict[str, Any]] = json.loads(GREEDY_FIXTURE.read_text("utf-8"))["cases"]
OPTIONS: Mapping[str, Any] = {
    "dtype": "float32",
    "max_model_len": 128,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 64,
}
NUM_TOKENS = 8


def answers(llm: LLM, cases: list[dict[str, Any]]) -> list[list[int]]:
    prompts = [case["prompt_token_ids"] for case in cases]
    params = SamplingParams(max_tokens=NUM_TOKENS, temperature=0.0, ignore_eos=True)
    outputs = llm.generate(prompt_token_ids=prompts, sampling_params=params)
    return [list(output.outputs[0].token_ids) for output in outputs]


def expected(cases: list[dict[str, Any]]) -> list[list[int]]:
    return [case["output_token_ids"][:NUM_TOKENS] for case in cases]


def open_on_device(**options: Any) -> LLM:
    return LLM("demo", platform="sim", num_kv_blocks=12, **{**OPTIONS, **options})


def test_tokens_of_the_device_are_right_and_nothing_waits_but_for_them() -> None:
    control.set_mode("lazy")
    with open_on_device(enforce_eager=True, max_num_batched_tokens=16) as llm:
        control.clear_counters()
        with control.forbid_implicit_sync():
            assert answers(llm, CASES[:2]) == expected(CASES[:2])
        counted = control.counters()
        assert counted["sync:event"] == llm.stats().times["num_steps"]
        assert not any(name.startswith(("implicit_sync", "allowed_sync")) for name in counted)


@pytest.fixture(scope="module")
def of_the_host() -> Iterator[list[list[int]]]:
    with open_on_host("demo", num_kv_blocks=32, **OPTIONS) as llm:
        yield answers(llm, CASES[:6])


@pytest.mark.extra
@pytest.mark.parametrize(("mode", "delay_us"), MODES)
def test_every_mode_gives_the_hosts_tokens_through_graphs(
    mode: Mode, delay_us: int, of_the_host: list[list[int]]
) -> None:
    control.set_mode(mode, delay_us)
    with open_on_device() as llm:
        control.clear_counters()
        with control.forbid_implicit_sync():
            assert answers(llm, CASES[:6]) == of_the_host == expected(CASES[:6])
        assert control.counters()["graph_replay"] > 0
