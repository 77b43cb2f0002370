"""Log-probabilities of prompts: against `transformers`, and once each whatever the engine does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from dougong import LLM, RequestOutput, SamplingParams
from dougong.errors import PluginError
from dougong.messages import TokenLogprobs
from dougong.testing.null_batch import NullBatch
from dougong.worker.model_runner import ModelRunner
from tests.support.null_engine import NullModels
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint

CPU: dict[str, Any] = {"platform": "cpu", "dtype": "float32", "block_size": 16}
NULL: dict[str, Any] = {"platform": "null", "block_size": 16}
TOLERANCE = 1e-4


def prompt(num_tokens: int, start: int = 0) -> list[int]:
    return [(7 * position + 13 * start + 5) % 250 for position in range(num_tokens)]


def params(count: int = 3, max_tokens: int = 4, **fields: Any) -> SamplingParams:
    return SamplingParams(
        max_tokens=max_tokens, temperature=0.0, ignore_eos=True, prompt_logprobs=count, **fields
    )


def entries(output: RequestOutput) -> list[TokenLogprobs]:
    """All but the first, which stands for nothing."""
    assert output.prompt_logprobs is not None
    first, *rest = output.prompt_logprobs
    assert first is None
    found = [one for one in rest if one is not None]
    assert [one.token_id for one in found] == list(output.prompt_token_ids[1:])
    return found


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), tiny_config()))


@pytest.fixture(scope="module")
def theirs(model: str) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()


@torch.no_grad()
def check(theirs: Any, output: RequestOutput, count: int) -> None:
    ids = list(output.prompt_token_ids)
    expected = theirs(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
    for position, entry in enumerate(entries(output)):
        row = expected[position]
        assert entry.logprob == pytest.approx(float(row[entry.token_id]), abs=TOLERANCE)
        best = row.topk(max(count, 1))
        assert [token for token, _ in entry.top] == best.indices[:count].tolist()
        assert [value for _, value in entry.top] == pytest.approx(
            best.values[:count].tolist(), abs=TOLERANCE
        )


@pytest.mark.parametrize("max_num_batched_tokens", [7, 16, 256])
def test_they_are_those_of_transformers_however_the_prompt_is_cut(
    model: str, theirs: Any, max_num_batched_tokens: int
) -> None:
    options = CPU | {"max_num_batched_tokens": max_num_batched_tokens, "max_num_seqs": 4}
    asked = [params(3), params(0), SamplingParams(max_tokens=4, temperature=0.0), params(20)]
    prompts = [prompt(50), prompt(33, 1), prompt(40, 2), prompt(2, 3)]
    with LLM(model, num_kv_blocks=60, **options) as llm:
        outputs = llm.generate(prompt_token_ids=prompts, sampling_params=asked)
        plain = llm.generate(prompt_token_ids=prompts, sampling_params=asked[2])
    for output, count in ((outputs[0], 3), (outputs[1], 0), (outputs[3], 20)):
        check(theirs, output, count)
    assert outputs[2].prompt_logprobs is None
    assert [one.outputs[0].token_ids for one in outputs] == [
        one.outputs[0].token_ids for one in plain
    ]


def test_a_wrong_token_or_row_would_be_seen(
    model: str, theirs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = ModelRunner.read_prompts

    def one_row_off(self: ModelRunner, hidden: torch.Tensor, prompts: Any) -> Any:
        return read(self, hidden.roll(1, 0), prompts)

    monkeypatch.setattr(ModelRunner, "read_prompts", one_row_off)
    with LLM(model, num_kv_blocks=60, **CPU) as llm:
        (output,) = llm.generate(prompt_token_ids=prompt(20), sampling_params=params())
    with pytest.raises(AssertionError):
        check(theirs, output, 3)


def test_a_prompt_of_one_token_has_none(null_models: NullModels) -> None:
    with LLM(null_models.write(), num_kv_blocks=60, **NULL) as llm:
        (output,) = llm.generate(prompt_token_ids=[5], sampling_params=params())
    assert output.prompt_logprobs == [None]


def test_a_cached_prefix_is_read_anew_and_sequences_share_one_answer(
    null_models: NullModels,
) -> None:
    with LLM(null_models.write(), num_kv_blocks=100, **NULL) as llm:
        llm.generate(prompt_token_ids=prompt(40), sampling_params=params())
        several = SamplingParams(n=3, seed=1, max_tokens=4, prompt_logprobs=2)
        (output,) = llm.generate(prompt_token_ids=prompt(40), sampling_params=several)
        assert output.num_cached_tokens == 0
        assert len(entries(output)) == 39
        assert len(output.outputs) == 3
        without = SamplingParams(max_tokens=4, temperature=0.0)
        (cached,) = llm.generate(prompt_token_ids=prompt(40), sampling_params=without)
        assert cached.num_cached_tokens == 32


@pytest.mark.parametrize("max_num_batched_tokens", [8, 64])
def test_preemption_neither_repeats_nor_loses_any(
    null_models: NullModels, max_num_batched_tokens: int
) -> None:
    options = NULL | {"max_num_batched_tokens": max_num_batched_tokens, "max_num_seqs": 8}
    prompts = [prompt(40, start) for start in range(8)]
    with LLM(null_models.write(), num_kv_blocks=20, **options) as llm:
        outputs = llm.generate(prompt_token_ids=prompts, sampling_params=params(max_tokens=100))
        assert llm.stats().scheduler.num_preemptions >= 1
    for output in outputs:
        assert len(entries(output)) == 39
        assert len(output.outputs[0].token_ids) == 100


def test_a_preemption_inside_the_prompt_begins_anew(null_models: NullModels) -> None:
    options = NULL | {"max_num_batched_tokens": 4, "max_num_seqs": 2, "num_kv_blocks": 17}
    with LLM(null_models.write(), **options) as llm:
        grower = llm.stream([5] * 16, SamplingParams(max_tokens=90, temperature=0.0))
        next(grower)
        waiting = llm.stream(prompt(200), params())
        growing = [next(grower)]
        output = next(waiting)
        growing += grower
        assert llm.stats().scheduler.num_preemptions == 1
    assert len(growing[-1].outputs[0].token_ids) == 90
    assert len(entries(output)) == 199


def test_they_are_there_with_the_first_token_of_a_stream(null_models: NullModels) -> None:
    with LLM(null_models.write(), num_kv_blocks=60, **NULL) as llm:
        for output in llm.stream(prompt_text(llm), params()):
            assert len(entries(output)) == len(output.prompt_token_ids) - 1


def prompt_text(llm: LLM) -> str:
    return llm.tokenizer.decode(prompt(12))


def test_a_worker_that_gives_none_ends_that_request_alone(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NullBatch, "prompt_tokens", lambda self: {})
    with LLM(null_models.write(), num_kv_blocks=60, **NULL) as llm:
        neighbour = llm.stream(
            "the", SamplingParams(max_tokens=9, temperature=0.0, ignore_eos=True)
        )
        next(neighbour)
        with pytest.raises(PluginError, match="0 log-probabilities of a prompt of 12 tokens"):
            llm.generate(prompt_token_ids=prompt(12), sampling_params=params())
        *_, last = neighbour
        assert len(last.outputs[0].token_ids) == 9
        assert llm.stats().scheduler.kv_cache.num_held_blocks == 0
