"""Sampling of a whole engine: against a model of `transformers` and the definition of each
parameter, and whatever the batch, the chunks and the pool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from dougong import LLM, SamplingParams
from dougong.errors import RequestError
from dougong.messages import NewRequestData
from dougong.worker.sampling_rows import SamplingRows
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import Stub
from tests.support.tiny_models import EOS_ID, tiny_config, write_tiny_checkpoint

BASE: dict[str, Any] = {"platform": "cpu", "dtype": "float32", "block_size": 16}
VOCAB_SIZE = int(tiny_config()["vocab_size"])
NUM_TOKENS = 24


def prompt(num_tokens: int, start: int = 0) -> list[int]:
    return [(7 * position + 13 * start + 5) % 250 for position in range(num_tokens)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), tiny_config()))


@pytest.fixture(scope="module")
def llm(model: str) -> Iterator[LLM]:
    with LLM(model, num_kv_blocks=200, **BASE) as made:
        yield made


@pytest.fixture(scope="module")
def theirs(model: str) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()


def greedy(**fields: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 0.0, "max_tokens": NUM_TOKENS, **fields})


def tokens_of(llm: LLM, prompts: Sequence[Sequence[int]], params: Any) -> list[list[int]]:
    outputs = llm.generate(prompt_token_ids=prompts, sampling_params=params)
    return [output.outputs[0].token_ids for output in outputs]


def edited(logits: torch.Tensor, ids: list[int], output: list[int], params: SamplingParams) -> None:
    """Every parameter by its definition, one token after the other, in place."""
    for token in {*ids}:
        factor = params.repetition_penalty
        logits[token] = logits[token] / factor if logits[token] > 0 else logits[token] * factor
    for token in output:
        logits[token] -= params.frequency_penalty
    for token in set(output):
        logits[token] -= params.presence_penalty
    for token, number in dict(params.logit_bias).items():
        logits[token] += number
    if params.allowed_token_ids is not None:
        for token in set(range(VOCAB_SIZE)) - set(params.allowed_token_ids):
            logits[token] = -torch.inf
    for *before, last in params.bad_token_ids:
        if output[len(output) - len(before) :] == before:
            logits[last] = -torch.inf
    if len(output) < params.min_tokens:
        logits[[*params.stop_token_ids, EOS_ID]] = -torch.inf


@torch.no_grad()
def by_definition(model: Any, ids: list[int], params: SamplingParams) -> list[int]:
    output: list[int] = []
    while len(output) < (params.max_tokens or 0):
        logits = model(torch.tensor([ids + output])).logits[0, -1].float()
        edited(logits, ids + output, output, params)
        token = int(logits.argmax())
        output.append(token)
        stops = {*params.stop_token_ids} | (set() if params.ignore_eos else {EOS_ID})
        if token in stops and len(output) > params.min_tokens:
            break
    return output


def cases(plain: list[int]) -> dict[str, SamplingParams]:
    """Each parameter, so that it matters to what a greedy model says without it."""
    return {
        "repetition": greedy(repetition_penalty=1.4),
        "repetition as a reward": greedy(repetition_penalty=0.7),
        "frequency": greedy(frequency_penalty=1.5),
        "presence": greedy(presence_penalty=2.0),
        "all penalties": greedy(
            repetition_penalty=1.2, frequency_penalty=0.5, presence_penalty=-0.5
        ),
        "bias": greedy(logit_bias={plain[0]: -100, plain[2]: 3.5}),
        "allowed": greedy(allowed_token_ids=[*range(40), EOS_ID]),
        "bad words": greedy(bad_token_ids=[[plain[0]], plain[1:3], [*plain[3:6]]]),
        "a stop id": greedy(stop_token_ids=[plain[3]]),
        "min_tokens": greedy(stop_token_ids=plain[1:4], min_tokens=10),
        "min_tokens and eos": greedy(logit_bias={EOS_ID: 100}, min_tokens=4),
        "ignored eos": greedy(logit_bias={EOS_ID: 100}, ignore_eos=True),
    }


CASES = tuple(cases(list(range(10))))


@pytest.mark.parametrize("case", CASES)
def test_greedy_tokens_are_those_of_the_definition(llm: LLM, theirs: Any, case: str) -> None:
    ids = prompt(19)
    plain = by_definition(theirs, ids, greedy(ignore_eos=True))
    params = cases(plain)[case]
    expected = by_definition(theirs, ids, params)
    assert expected != plain
    assert tokens_of(llm, [ids], params) == [expected]


def test_requests_of_one_batch_get_what_each_asked_for(llm: LLM, theirs: Any) -> None:
    ids = prompt(19)
    all_params = list(cases(by_definition(theirs, ids, greedy(ignore_eos=True))).values())
    alone = [tokens_of(llm, [ids], params)[0] for params in all_params]
    assert tokens_of(llm, [ids] * len(all_params), all_params) == alone


DRAWN = SamplingParams(
    temperature=0.9, seed=17, max_tokens=70, ignore_eos=True, min_p=0.02, top_k=40, top_p=0.95,
    repetition_penalty=1.2, frequency_penalty=0.3, presence_penalty=0.2, min_tokens=40,
    stop_token_ids=list(range(0, 128)), logit_bias={5: 1.0}, bad_token_ids=[[9], [200, 201]],
)  # fmt: skip


@pytest.mark.parametrize("enable_prefix_caching", [False, True])
def test_neither_preemption_nor_chunks_change_what_penalties_and_min_tokens_see(
    llm: LLM, model: str, enable_prefix_caching: bool
) -> None:
    prompts = [prompt(40, start) for start in range(8)]
    alone = [tokens_of(llm, [one], DRAWN)[0] for one in prompts]
    assert all(len(one) >= 40 for one in alone)
    options = BASE | {"enable_prefix_caching": enable_prefix_caching, "max_num_seqs": 8}
    with LLM(model, num_kv_blocks=24, max_num_batched_tokens=24, **options) as small:
        assert tokens_of(small, prompts, DRAWN) == alone
        assert small.stats().scheduler.num_preemptions >= 1


def test_tokens_of_before_a_preemption_that_count_as_prompt_would_be_seen(
    llm: LLM, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [prompt(40, start) for start in range(8)]
    alone = [tokens_of(llm, [one], DRAWN)[0] for one in prompts]
    take = SamplingRows.set

    def all_prompt(self: SamplingRows, row: int, new: NewRequestData) -> None:
        take(self, row, replace(new, num_prompt_tokens=len(new.token_ids)))

    monkeypatch.setattr(SamplingRows, "set", all_prompt)
    with LLM(model, num_kv_blocks=24, max_num_seqs=8, **BASE) as small:
        found = tokens_of(small, prompts, DRAWN)
        assert small.stats().scheduler.num_preemptions >= 1
    assert found != alone


def test_several_sequences_are_those_of_their_own_seeds(llm: LLM) -> None:
    params = SamplingParams(n=3, seed=5, max_tokens=12, ignore_eos=True, presence_penalty=1.0)
    (output,) = llm.generate(prompt_token_ids=prompt(19), sampling_params=params)
    found = [one.token_ids for one in output.outputs]
    assert len({tuple(one) for one in found}) == 3
    for index, own in enumerate(found):
        single = SamplingParams(
            seed=5 + index, max_tokens=12, ignore_eos=True, presence_penalty=1.0
        )
        assert tokens_of(llm, [prompt(19)], single) == [own]


def wrong(token_id: int) -> dict[str, dict[str, Any]]:
    return {
        "stop_token_ids": {"stop_token_ids": [token_id], "min_tokens": 5},
        "logit_bias": {"logit_bias": {token_id: 1.0}},
        "allowed_token_ids": {"allowed_token_ids": [1, token_id]},
        "bad_token_ids": {"bad_token_ids": [[1, token_id]]},
    }


@pytest.mark.parametrize("token_id", [-1, VOCAB_SIZE, 10**6, 2**40])
@pytest.mark.parametrize("field", wrong(0))
def test_an_id_outside_the_vocabulary_is_refused_and_a_neighbour_unharmed(
    llm: LLM, theirs: Any, field: str, token_id: int
) -> None:
    ids, neighbour = prompt(19), greedy(ignore_eos=True, max_tokens=6)
    usual = tokens_of(llm, [ids], neighbour)
    running = llm.stream(ids, neighbour)
    next(running)
    with pytest.raises(RequestError) as caught:
        tokens_of(llm, [ids], greedy(**wrong(token_id)[field]))
    assert caught.value.field == field
    *_, last = running
    assert [last.outputs[0].token_ids] == usual
    edge = greedy(max_tokens=6, **wrong(VOCAB_SIZE - 1)[field])
    assert len(tokens_of(llm, [ids], edge)) == 1


def test_bad_words_do_not_come_about(llm: LLM) -> None:
    plain = llm.generate("the", greedy(ignore_eos=True))[0].outputs[0].text
    word = next(one for one in plain if one.isprintable() and one.isascii() and one != " ")
    params = greedy(ignore_eos=True, bad_words=word)
    token_ids = llm.generate("the", params)[0].outputs[0].token_ids
    assert llm.tokenizer.encode(word, add_special_tokens=False)[0] not in token_ids


PENALTIES = """
from dougong.ops import register_kernel


@register_kernel("penalties", name="ext/penalties", mutates=("logits",))
def penalties(logits, in_prompt, output_counts, repetition, frequency, presence):
    return logits.fill_(0).index_fill_(1, (repetition * 100).long()[:1], 1.0)
"""


def test_a_vendors_penalties_take_the_place_of_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    stub = Stub(distribution="ext", name="ext", has_platform=False, hooks=PENALTIES)
    Installed(tmp_path / "stubs", monkeypatch).add(stub)
    with LLM(model, num_kv_blocks=20, **BASE) as ours:
        params = greedy(repetition_penalty=1.25, max_tokens=3, ignore_eos=True)
        found = tokens_of(ours, [prompt(5), prompt(5)], [params, greedy(max_tokens=3)])
    assert found[0] == [125, 125, 125]
    assert found[1] != [125, 125, 125]
