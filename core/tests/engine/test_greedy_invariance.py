"""Greedy float32 output is the same tokens whatever the batch, chunks, blocks, cache and pool."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from dougong import LLM, AsyncEngine, SamplingParams
from dougong.errors import RequestError
from dougong.messages import RequestOutput
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint

BASE: dict[str, Any] = {"platform": "cpu", "dtype": "float32", "block_size": 16}
TOLERANCE = 1e-4  # of log-probabilities, float32


def prompt(num_tokens: int, start: int = 0) -> list[int]:
    return [(7 * position + 13 * start + 5) % 250 for position in range(num_tokens)]


def greedy(max_tokens: int = 32, **fields: Any) -> SamplingParams:
    return SamplingParams(
        max_tokens=max_tokens, temperature=0.0, ignore_eos=True, logprobs=0, **fields
    )


def tokens(outputs: Sequence[RequestOutput]) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


def check_same(one: RequestOutput, other: RequestOutput) -> None:
    """Identical tokens and reasons, log-probabilities within the tolerance."""
    left, right = one.outputs[0], other.outputs[0]
    assert left.token_ids == right.token_ids
    assert left.text == right.text
    assert left.finish_reason == right.finish_reason
    assert left.logprobs is not None
    assert right.logprobs is not None
    assert [entry.logprob for entry in left.logprobs] == pytest.approx(
        [entry.logprob for entry in right.logprobs], abs=TOLERANCE
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    config = tiny_config(num_hidden_layers=3)
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), config))


@pytest.fixture(scope="module")
def expected(model: str) -> list[RequestOutput]:
    """Eight prompts one at a time, in a large pool, without a prefix cache."""
    prompts = [prompt(40, start) for start in range(8)]
    with LLM(model, num_kv_blocks=200, enable_prefix_caching=False, **BASE) as llm:
        return [llm.generate([one], greedy(100))[0] for one in prompts]


@pytest.mark.parametrize("enable_prefix_caching", [False, True])
def test_preemption_does_not_change_text(
    model: str, expected: list[RequestOutput], enable_prefix_caching: bool
) -> None:
    options = BASE | {"enable_prefix_caching": enable_prefix_caching, "max_num_seqs": 8}
    prompts = [list(output.prompt_token_ids) for output in expected]
    with LLM(model, num_kv_blocks=24, **options) as llm:
        outputs = llm.generate(prompts, greedy(100))
        assert llm.stats().scheduler.num_preemptions >= 1
    for one, other in zip(outputs, expected, strict=True):
        check_same(one, other)
        assert len(one.prompt_token_ids) == 40
        assert len(one.outputs[0].token_ids) == 100


@pytest.mark.parametrize("enable_prefix_caching", [False, True])
async def test_preemption_neither_repeats_nor_loses_a_part_of_a_stream(
    model: str, expected: list[RequestOutput], enable_prefix_caching: bool
) -> None:
    options = BASE | {"enable_prefix_caching": enable_prefix_caching, "max_num_seqs": 8}
    async with await AsyncEngine.start(
        model, in_own_process=False, num_kv_blocks=24, **options
    ) as engine:

        async def parts(whole: RequestOutput) -> list[RequestOutput]:
            return [o async for o in engine.generate(whole.prompt_token_ids, greedy(100))]

        streams = await asyncio.gather(*map(parts, expected))
        assert (await engine.stats()).scheduler.num_preemptions >= 1
    for stream, whole in zip(streams, expected, strict=True):
        check_same(stream[-1], whole)
        assert len(stream) > 2
        for before, after in pairwise(output.outputs[0] for output in stream):
            assert after.text.startswith(before.text)
            assert after.token_ids[: len(before.token_ids)] == before.token_ids
            assert len(after.token_ids) > len(before.token_ids) or after.finish_reason


@pytest.mark.parametrize(
    "options",
    [
        {"max_num_seqs": 8},
        {"max_num_seqs": 3, "max_num_batched_tokens": 7},
        {"max_num_seqs": 8, "max_num_batched_tokens": 33},
        {"max_num_seqs": 8, "block_size": 32},
        {"max_num_seqs": 8, "attention_backend": "reference/torch"},
    ],
    ids=str,
)
def test_batch_chunks_blocks_and_backend_do_not_change_text(
    model: str, expected: list[RequestOutput], options: dict[str, Any]
) -> None:
    prompts = [list(output.prompt_token_ids) for output in expected]
    with LLM(model, num_kv_blocks=200, **BASE | options) as llm:
        outputs = llm.generate(prompts, greedy(40))
    assert tokens(outputs) == [one[:40] for one in tokens(expected)]


def test_the_prefix_cache_is_invisible_in_the_output(model: str) -> None:
    lengths = (15, 16, 17, 31, 32, 33, 64)
    shared = prompt(48, start=99)
    cases = [prompt(length) for length in lengths] + [[*shared, 1, 2], [*shared, 3]]
    with LLM(model, num_kv_blocks=200, enable_prefix_caching=False, **BASE) as llm:
        off = [llm.generate([case], greedy())[0] for case in cases]
    for case, without in zip(cases[:7], off[:7], strict=True):
        with LLM(model, num_kv_blocks=200, **BASE) as llm:
            cold, warm, warmer = (llm.generate([case], greedy())[0] for _ in range(3))
        for output in (cold, warm, warmer):
            check_same(output, without)
        assert cold.num_cached_tokens == 0
        assert warm.num_cached_tokens == (len(case) - 1) // 16 * 16
    with LLM(model, num_kv_blocks=200, **BASE) as llm:
        first, second = (llm.generate([case], greedy())[0] for case in cases[7:])
        check_same(first, off[7])
        check_same(second, off[8])
        assert second.num_cached_tokens == 48
        stops = tuple(output.outputs[0].text[3:5] for output in (first, second))
        stopped = llm.generate(cases[7:], greedy(stop=stops))
        assert all(output.outputs[0].finish_reason == "stop" for output in stopped)
        assert {output.outputs[0].stop_reason for output in stopped} <= set(stops)
        after = llm.generate(cases[7:], greedy())
    for output, without in zip(after, off[7:], strict=True):
        check_same(output, without)
        assert output.num_cached_tokens == 48


def test_a_request_that_can_never_fit_is_refused_and_others_are_served(model: str) -> None:
    with LLM(model, num_kv_blocks=8, max_model_len=256, **BASE) as llm:
        usable = llm.report.num_kv_blocks * 16
        for num_tokens in (1, 111, 112, 113, 127, 128, 129, 255):
            if num_tokens <= usable:
                (output,) = llm.generate([prompt(num_tokens)], greedy(1))
                assert len(output.outputs[0].token_ids) == 1
            else:
                with pytest.raises(RequestError, match=str(usable)):
                    llm.generate([prompt(num_tokens)], greedy(1))
            assert len(llm.generate([prompt(3)], greedy(1))) == 1


def test_sampling_with_a_seed_is_repeatable_whatever_else_runs(model: str) -> None:
    params = SamplingParams(temperature=0.9, top_p=0.95, seed=3, max_tokens=20, n=2)
    with LLM(model, num_kv_blocks=200, max_num_seqs=8, **BASE) as llm:
        alone = llm.generate([prompt(20)], params)[0]
        crowd = llm.generate([prompt(20), *(prompt(30, i) for i in range(3))], params)[0]
    assert [one.token_ids for one in alone.outputs] == [one.token_ids for one in crowd.outputs]
    assert alone.outputs[0].token_ids != alone.outputs[1].token_ids


def test_weights_and_cache_fit_the_memory_budget(model: str) -> None:
    with LLM(model, **BASE) as llm:
        memory = llm.report.memory
        assert memory.weights > 0
        assert memory.weights + memory.kv_cache <= memory.budget <= memory.limit
