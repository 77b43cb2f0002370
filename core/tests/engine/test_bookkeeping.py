"""Whatever the batch, the pool and the cache: the same tokens. The null worker reads every sequence
back through its block table before each token, so a wrong block is found in the step it happens."""

from __future__ import annotations

from typing import Any

import pytest

from dougong import LLM, SamplingParams
from tests.support.null_engine import NullModels

PROMPTS = [[first, *range(40)] for first in range(8)]
PARAMS = SamplingParams(max_tokens=100, temperature=0.0)
BASE: dict[str, Any] = {"platform": "null", "block_size": 16}


def tokens(llm: LLM, prompts: list[list[int]], params: SamplingParams = PARAMS) -> list[list[int]]:
    outputs = llm.generate(prompts, params)
    assert all(output.outputs[0].finish_reason == "length" for output in outputs)
    return [output.outputs[0].token_ids for output in outputs]


@pytest.mark.parametrize("enable_prefix_caching", [False, True])
@pytest.mark.parametrize("max_num_batched_tokens", [8, 64])
def test_preemption_changes_nothing(
    null_models: NullModels, enable_prefix_caching: bool, max_num_batched_tokens: int
) -> None:
    model = null_models.write()
    options = BASE | {
        "enable_prefix_caching": enable_prefix_caching,
        "max_num_batched_tokens": max_num_batched_tokens,
        "max_num_seqs": 8,
    }
    with LLM(model, num_kv_blocks=1000, **options) as llm:
        expected = tokens(llm, PROMPTS)
        assert llm.stats().scheduler.num_preemptions == 0
    with LLM(model, num_kv_blocks=20, **options) as llm:
        assert tokens(llm, PROMPTS) == expected
        stats = llm.stats().scheduler
        assert stats.num_preemptions >= 1
        assert stats.kv_cache.num_held_blocks == 0


def test_a_cached_prefix_changes_nothing_and_is_counted(null_models: NullModels) -> None:
    with LLM(null_models.write(), num_kv_blocks=100, **BASE) as llm:
        cold, warm = (llm.generate([5] * 33, PARAMS)[0] for _ in range(2))
        assert cold.num_cached_tokens == 0
        assert warm.num_cached_tokens == 32
        assert warm.outputs == cold.outputs


def test_alone_and_in_a_batch_are_the_same(null_models: NullModels) -> None:
    with LLM(null_models.write(), num_kv_blocks=1000, **BASE) as llm:
        alone = [tokens(llm, [prompt])[0] for prompt in PROMPTS]
        assert tokens(llm, PROMPTS) == alone


def test_several_sequences_of_one_prompt_share_its_blocks_and_differ_by_seed(
    null_models: NullModels,
) -> None:
    with LLM(null_models.write(), num_kv_blocks=1000, enable_prefix_caching=False, **BASE) as llm:
        params = SamplingParams(n=4, seed=11, max_tokens=40)
        (output,) = llm.generate([[5] * 33], params)
        assert [one.index for one in output.outputs] == [0, 1, 2, 3]
        assert len({tuple(one.token_ids) for one in output.outputs}) == 4
        for index, one in enumerate(output.outputs):
            single = SamplingParams(seed=11 + index, max_tokens=40)
            assert llm.generate([[5] * 33], single)[0].outputs[0].token_ids == one.token_ids


def test_priority_runs_first_under_that_policy(null_models: NullModels) -> None:
    with LLM(null_models.write(), num_kv_blocks=100, scheduling_policy="priority", **BASE) as llm:
        assert next(d for d in llm.report.decisions if d.field == "scheduling_policy").value == (
            "priority"
        )
        assert len(tokens(llm, PROMPTS)) == 8
