"""Structured output of a whole engine: every text fits what was asked for, however it is drawn, and
no other request notices."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal

import pydantic
import pytest

from dougong import LLM, AsyncEngine, SamplingParams
from dougong.engine.core import EngineCore
from dougong.errors import DougongError, RequestError
from dougong.grammar import GrammarFollower
from dougong.grammar.compiler import GrammarCompiler
from dougong.messages import CompletionOutput, FinishReason, RequestDelta, StructuredOutput
from dougong.testing.null_worker import NullWorker
from dougong.worker import ModelRunner, ModelStep
from tests.support.null_engine import NULL_OPTIONS, NullModels
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint

BASE: dict[str, Any] = {"platform": "cpu", "dtype": "float32", "block_size": 16}
VOCAB_SIZE = 333  # more logits than the tokenizer has tokens, and no whole number of words


class Person(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    name: str = pydantic.Field(max_length=8)
    age: int = pydantic.Field(ge=0, le=130)
    pets: list[Literal["cat", "dog"]] = pydantic.Field(max_length=2)
    is_tall: bool | None


PERSON = StructuredOutput(json_schema=json.dumps(Person.model_json_schema()))
PHONE = StructuredOutput(regex=r"\d{3}-[a-f]{2,5}(x|yz)?")
CHOICE = StructuredOutput(choice=["red", "redder", "the \N{GREEK SMALL LETTER DELTA}", "no"])
SUM = StructuredOutput(grammar='start: term "+" term\nterm: /[0-9]{1,3}/ | "(" term "-" term ")"\n')


def is_sum(text: str) -> bool:
    while (shorter := re.sub(r"\((\d{1,3})-(\d{1,3})\)", "1", text)) != text:
        text = shorter
    return re.fullmatch(r"\d{1,3}\+\d{1,3}", text) is not None


KINDS: dict[str, tuple[StructuredOutput, Callable[[str], object]]] = {
    "json_schema": (PERSON, Person.model_validate_json),
    "regex": (PHONE, lambda text: re.fullmatch(r"\d{3}-[a-f]{2,5}(x|yz)?", text)),
    "choice": (CHOICE, lambda text: text in CHOICE.choice),  # type: ignore[operator]  # given above
    "grammar": (SUM, is_sum),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    config = tiny_config(vocab_size=VOCAB_SIZE)
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), config))


@pytest.fixture(scope="module")
def llm(model: str) -> Iterator[LLM]:
    with LLM(model, num_kv_blocks=200, max_num_seqs=16, **BASE) as made:
        yield made


def asking(wish: StructuredOutput | None, **fields: Any) -> SamplingParams:
    return SamplingParams(
        **{"structured_output": wish, "temperature": 0.0, "max_tokens": 200, **fields}
    )


def answers(llm: LLM, *params: SamplingParams) -> list[CompletionOutput]:
    prompts = [f"prompt {index}" for index in range(len(params))]
    outputs = llm.generate(prompts, list(params))
    return [one for output in outputs for one in output.outputs]


def is_idle(llm: LLM) -> bool:
    stats = llm.stats()
    usage = stats.scheduler.kv_cache
    return (usage.num_held_blocks, stats.structured.num_following) == (0, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_text_fits_whether_greedy_or_hot(llm: LLM, kind: str) -> None:
    wish, fits = KINDS[kind]
    hot = [asking(wish, temperature=one, seed=seed) for seed in range(7) for one in (1.0, 5.0)]
    found = answers(llm, asking(wish), *hot)
    for one in found:
        assert fits(one.text), one.text
        assert one.finish_reason is FinishReason.STOP
    assert len({one.text for one in found}) > 1, "a hot draw is no greedy one"
    assert is_idle(llm)


def test_an_object_is_one_as_far_as_it_goes(llm: LLM) -> None:
    wish = StructuredOutput(json_object=True)
    found = answers(llm, *(asking(wish, temperature=2.0, seed=seed) for seed in range(12)))
    ended = [one for one in found if one.finish_reason is FinishReason.STOP]
    assert ended
    assert all(isinstance(json.loads(one.text), dict) for one in ended)
    assert all(one.text.startswith("{") for one in found)


def test_rows_beside_it_are_what_they_are_alone(llm: LLM) -> None:
    others = [
        asking(None, max_tokens=30),
        asking(None, max_tokens=30, temperature=1.0, seed=5, logprobs=2),
        asking(None, max_tokens=30, temperature=1.0, seed=6, repetition_penalty=1.3),
    ]
    mixed = [others[0], asking(PERSON), others[1], asking(PHONE, temperature=1.0, seed=1),
             others[2], asking(CHOICE)]  # fmt: skip
    prompts = [f"text {index}" for index in range(6)]
    together = [one.outputs[0] for one in llm.generate(prompts, mixed)]
    for index, params in enumerate(mixed):
        alone = llm.generate(prompts[index], params)[0].outputs[0]
        assert together[index].token_ids == alone.token_ids
        assert together[index].text == alone.text


def test_log_probabilities_are_the_models_own(llm: LLM) -> None:
    (found,) = answers(llm, asking(CHOICE, logprobs=3))
    assert found.logprobs is not None
    assert [one.token_id for one in found.logprobs] == found.token_ids
    assert any(one.token_id != one.top[0][0] for one in found.logprobs)
    assert all(one.logprob <= one.top[0][1] for one in found.logprobs)


def test_n_texts_share_a_prompt_and_go_their_own_ways(llm: LLM) -> None:
    before = llm.stats().structured.num_compiled
    wish = StructuredOutput(regex="[a-z]{12}")
    found = answers(llm, asking(wish, n=6, temperature=1.0, seed=3))
    assert all(re.fullmatch("[a-z]{12}", one.text) for one in found)
    assert len({one.text for one in found}) == 6
    assert llm.stats().structured.num_compiled == before + 1
    alone = answers(llm, asking(wish, temperature=1.0, seed=5))[0]
    assert alone.text == found[2].text, "sequence i draws with seed + i"


def test_min_tokens_keeps_a_text_going_only_where_it_may_go_on(llm: LLM) -> None:
    short, long = answers(
        llm,
        asking(StructuredOutput(regex="abc"), min_tokens=20),
        asking(StructuredOutput(regex="[ab]{2,40}"), min_tokens=20, temperature=1.0, seed=0),
    )
    assert (short.text, short.finish_reason) == ("abc", FinishReason.STOP)
    assert len(long.token_ids) >= 20


def test_a_stop_string_a_stop_id_and_max_tokens_cut_a_text_short(llm: LLM) -> None:
    wish = StructuredOutput(regex="abcabcabc")
    (c_id,) = llm.tokenizer.encode("c", add_special_tokens=False)
    by_text, by_id, by_length = answers(
        llm, asking(wish, stop=("ca",)), asking(wish, stop_token_ids=(c_id,)),
        asking(wish, max_tokens=4),
    )  # fmt: skip
    assert (by_text.text, by_text.stop_reason) == ("ab", "ca")
    assert (by_id.text, by_id.stop_reason) == ("ab", c_id)
    assert (by_length.text, by_length.finish_reason) == ("abca", FinishReason.LENGTH)
    assert is_idle(llm)


def test_biases_and_penalties_choose_among_what_is_allowed(llm: LLM) -> None:
    wish = StructuredOutput(regex="[ab]{10}")
    ids = [llm.tokenizer.encode(one, add_special_tokens=False)[0] for one in "abc"]
    (found,) = answers(llm, asking(wish, logit_bias={ids[0]: -100, ids[1]: 50, ids[2]: 100}))
    assert found.text == "b" * 10


@pytest.mark.parametrize("options", [{"max_num_batched_tokens": 8}, {"num_kv_blocks": 9}])
def test_chunks_preemption_and_the_prefix_cache_change_nothing(
    llm: LLM, model: str, options: dict[str, Any]
) -> None:
    wishes = [PERSON, PHONE, CHOICE, SUM, None, StructuredOutput(regex="[a-z]{30}")]
    params = [asking(one, temperature=1.0, seed=9, max_tokens=60) for one in wishes]
    prompts = [f"the same beginning of every prompt {index}" for index in range(6)]
    expected = [one.outputs[0].token_ids for one in llm.generate(prompts, params)]
    with LLM(model, max_num_seqs=6, **{"num_kv_blocks": 200, **BASE, **options}) as other:
        for _ in range(2):  # the second time from the prefix cache
            found = [one.outputs[0].token_ids for one in other.generate(prompts, params)]
            assert found == expected
        if "num_kv_blocks" in options:
            assert other.stats().scheduler.num_preemptions > 0


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        (StructuredOutput(regex="("), "regex"),
        (StructuredOutput(json_schema='{"type":"objec"}'), "json_schema"),
        (StructuredOutput(grammar="start: foo"), "grammar"),
        (StructuredOutput(grammar='start: "a" <|nowhere|>'), "grammar"),
        (StructuredOutput(regex=r"[^\s\S]"), "regex"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_its_field(
    llm: LLM, wish: StructuredOutput, field: str
) -> None:
    num_steps = llm.stats().times["num_steps"]
    with pytest.raises(RequestError) as caught:
        llm.generate("x", asking(wish))
    assert caught.value.field == field
    assert llm.stats().times["num_steps"] == num_steps
    assert is_idle(llm)


def test_a_grammar_that_becomes_too_costly_ends_its_request_alone(llm: LLM) -> None:
    properties = {f"p{number}": {"type": "boolean"} for number in range(700)}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    wide, plain = asking(StructuredOutput(json_schema=json.dumps(schema))), asking(PHONE)
    core: EngineCore = llm._client.core  # type: ignore[attr-defined]  # in this process
    lost, wide_requests = llm._front.add(llm._front.tokenize("a"), wide)
    well, requests = llm._front.add(llm._front.tokenize("b"), plain)
    for one in (*wide_requests, *requests):
        core.add(one)
    while core.has_requests():
        llm._front.apply(core.step())
    assert isinstance(lost.error, RequestError)
    assert lost.error.field == "json_schema"
    assert well.error is None
    assert re.fullmatch(PHONE.regex or "", well.snapshot().outputs[0].text)
    assert is_idle(llm)


def test_a_stream_left_while_its_grammar_is_compiled_leaves_nothing(llm: LLM) -> None:
    stream = llm.stream("x", asking(StructuredOutput(regex="[a-y]{50}")))
    next(stream)
    stream.close()  # type: ignore[attr-defined]  # a generator
    assert is_idle(llm)
    assert llm.stats().structured.num_compiling == 0


def test_masks_are_waited_for_between_the_forward_and_the_choice(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    core = llm._client.core  # type: ignore[attr-defined]  # in this process
    masks = core._structured._masks
    start, forward = type(masks).start, ModelRunner.forward

    def started(self: Any, *arguments: Any) -> Any:
        job = start(self, *arguments)
        order.append("start")
        result = job.result

        def joined() -> Any:
            order.append("join")
            return result()

        monkeypatch.setattr(job, "result", joined)
        return job

    def forwarded(self: ModelRunner, inputs: Any) -> Any:
        order.append("forward")
        return forward(self, inputs)

    monkeypatch.setattr(type(masks), "start", started)
    monkeypatch.setattr(ModelRunner, "forward", forwarded)
    answers(llm, asking(StructuredOutput(regex="ab")))
    assert order == ["start", "forward", "join"] * 2


def test_planted_a_runner_that_ignores_masks_is_found_out(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = ModelRunner.sample

    def blind(self: ModelRunner, step: ModelStep) -> ModelStep:
        step.grammar = None
        return sample(self, step)

    monkeypatch.setattr(ModelRunner, "sample", blind)
    with pytest.raises(DougongError, match="forbids") as caught:
        llm.generate("x", asking(StructuredOutput(regex="zzzzzzzz")))
    assert not isinstance(caught.value, RequestError)
    assert is_idle(llm)


def test_planted_masks_of_the_wrong_rows_are_found_out(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = [asking(StructuredOutput(regex=one)) for one in ("aaaa", "bbbb")]
    assert [one.text for one in answers(llm, *params)] == ["aaaa", "bbbb"]  # both compiled now
    sample = ModelRunner.sample

    def mixed_up(self: ModelRunner, step: ModelStep) -> ModelStep:
        if step.grammar is not None:
            step.grammar = replace(step.grammar, req_ids=tuple(reversed(step.grammar.req_ids)))
        return sample(self, step)

    monkeypatch.setattr(ModelRunner, "sample", mixed_up)
    with pytest.raises(DougongError, match="forbids"):
        answers(llm, *params)


async def test_streams_of_an_engine_process_go_on_beside_a_refusal(model: str) -> None:
    async with await AsyncEngine.start(model, num_kv_blocks=200, **BASE) as engine:
        partial: list[str] = []
        wrong = asking(StructuredOutput(grammar='start: "a" <|nowhere|>'))
        async for output in engine.generate("x", asking(PERSON, temperature=1.0, seed=2)):
            if not partial:
                with pytest.raises(RequestError) as caught:
                    await anext(aiter(engine.generate("y", wrong)))
                assert caught.value.field == "grammar"
            partial.append(output.outputs[0].text)
        Person.model_validate_json(partial[-1])
        assert all(partial[-1].startswith(one) for one in partial)
        stats = (await engine.stats()).structured
        assert (stats.num_following, stats.num_compiling) == (0, 0)
        assert stats.num_masks > 10


def test_a_worker_that_takes_no_masks_is_told_of_before_anything_is_computed(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NullWorker, "takes_grammar_masks", False)
    with LLM(null_models.write(), **NULL_OPTIONS) as llm:
        assert not llm.report.takes_grammar_masks
        with pytest.raises(RequestError, match="takes_grammar_masks") as caught:
            llm.generate("x", asking(PHONE))
        assert caught.value.field == "structured_output"
        assert llm.generate("x", asking(None, max_tokens=3))[0].is_finished


def test_other_requests_run_while_a_grammar_is_compiled(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, compiled = threading.Event(), GrammarCompiler._compile

    def slowly(self: GrammarCompiler, wish: StructuredOutput) -> GrammarFollower:
        gate.wait()
        return compiled(self, wish)

    monkeypatch.setattr(GrammarCompiler, "_compile", slowly)
    with LLM(null_models.write(), **NULL_OPTIONS) as llm:
        core: EngineCore = llm._client.core  # type: ignore[attr-defined]  # in this process
        _, slow = llm._front.add(llm._front.tokenize("a"), asking(PHONE))
        _, quick = llm._front.add(llm._front.tokenize("b"), asking(None, max_tokens=3))
        for one in (*slow, *quick):
            core.add(one)
        first: list[RequestDelta] = []
        while len(first) < 3:
            first += core.step()
        assert {one.request_id for one in first} == {quick[0].request_id}
        gate.set()
        rest = []
        while core.has_requests():
            rest += core.step()
        text = llm.tokenizer.decode([token for one in rest for token in one.new_token_ids])
        assert re.fullmatch(PHONE.regex or "", text)
