"""Tokens of the device equal those of the CPU platform, in every mode, and nothing waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from dougong import LLM, SamplingParams

from dougong_sim.device import control
from tests.engine.checkpoints import prompt_of
from tests.engine.conftest import MODES, OPTIONS

PROMPTS = [prompt_of(length, start) for length, start in ((5, 1), (21, 2), (40, 3), (33, 4))]
GREEDY = SamplingParams(max_tokens=30, temperature=0.0, ignore_eos=True)
SAMPLED = [
    SamplingParams(max_tokens=8, temperature=0.9, seed=1, ignore_eos=True),
    SamplingParams(max_tokens=8, temperature=1.3, top_k=20, seed=2, logprobs=3),
    SamplingParams(max_tokens=8, temperature=0.7, top_p=0.8, seed=3, n=2),
    SamplingParams(max_tokens=8, temperature=0.0, min_tokens=6, stop_token_ids=[9, 17], logprobs=2),
]


@pytest.fixture(scope="module", params=MODES, ids=lambda mode: mode[0])
def device(request: pytest.FixtureRequest, tiny: str) -> Iterator[LLM]:
    """An engine with too few blocks for four long sequences at once."""
    control.set_mode(*request.param)
    with LLM(tiny, platform="sim", block_size=24, num_kv_blocks=8, **OPTIONS) as llm:
        yield llm


def tokens(
    llm: LLM, prompts: Sequence[list[int]], params: SamplingParams | list[SamplingParams]
) -> list[list[list[int]]]:
    """Of each prompt and each of its answers."""
    outputs = llm.generate(prompt_token_ids=prompts, sampling_params=params)
    return [[list(one.token_ids) for one in output.outputs] for output in outputs]


def test_chunked_preempted_and_mixed_steps_change_no_token(device: LLM, host: LLM) -> None:
    expected = tokens(host, PROMPTS, GREEDY)
    with control.forbid_implicit_sync():
        found = tokens(device, PROMPTS, GREEDY)
    assert found == expected
    assert device.stats().scheduler.num_preemptions > 0


def test_a_prefix_that_is_cached_changes_no_token(device: LLM, host: LLM) -> None:
    before = device.stats().scheduler.kv_cache.num_hit_tokens
    prompts = [PROMPTS[2] + [tail] for tail in (11, 12)]
    expected = [tokens(host, [prompt], GREEDY) for prompt in prompts]
    with control.forbid_implicit_sync():
        found = [tokens(device, [prompt], GREEDY) for prompt in prompts]
    assert found == expected
    assert device.stats().scheduler.kv_cache.num_hit_tokens > before


def test_drawn_tokens_follow_the_seed(device: LLM, host: LLM) -> None:
    expected = tokens(host, PROMPTS, SAMPLED)
    with control.forbid_implicit_sync():
        found = tokens(device, PROMPTS, SAMPLED)
    assert found == expected


def test_log_probabilities_are_those_of_the_host(device: LLM, host: LLM) -> None:
    params = SamplingParams(max_tokens=3, temperature=0.0, ignore_eos=True, logprobs=2)
    pairs = []
    for llm in (host, device):
        (output,) = llm.generate(prompt_token_ids=[PROMPTS[1]], sampling_params=params)
        logprobs = output.outputs[0].logprobs
        assert logprobs is not None
        pairs.append(logprobs)
    for meant, found in zip(*pairs, strict=True):
        assert found.token_id == meant.token_id
        assert found.logprob == pytest.approx(meant.logprob, abs=1e-4)


def test_a_step_waits_once_and_by_name(device: LLM) -> None:
    control.clear_counters()
    before = device.stats().times["num_steps"]
    tokens(device, PROMPTS[:2], GREEDY)
    num_steps = device.stats().times["num_steps"] - before
    counted = control.counters()
    assert counted["sync:event"] == num_steps
    waits = [name for name in counted if "sync:" in name and name != "sync:event"]
    assert waits == []
