from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import pytest

from dougong.engine.detokenizer import Detokenizer
from dougong.engine.front import FrontEnd
from dougong.engine.start_report import MemoryReport, StartReport
from dougong.engine.tokenizer import Tokenizer
from dougong.errors import RequestError
from dougong.messages import FinishReason, RequestDelta, SamplingParams
from dougong.scheduler import RequestLimits
from tests.support.made_up_plans import plain_plan

VOCAB_SIZE = 288
REPORT = StartReport(
    model="m",
    architecture="LlamaForCausalLM",
    vocab_size=VOCAB_SIZE,
    dtype="float32",
    platform="null",
    devices=(),
    platform_reasons=(),
    decisions=(),
    memory=MemoryReport(limit=1, budget=1, weights=1, kv_cache=1),
    num_kv_blocks=8,
    block_size=16,
    plan=plain_plan(),
    limits=RequestLimits(max_model_len=256, num_token_slots=128),
)


@pytest.fixture
def front(tokenizer: Tokenizer) -> FrontEnd:
    return FrontEnd(tokenizer, REPORT)


@pytest.mark.parametrize("wrong", [-1, VOCAB_SIZE, 10**6, 2**40, True, 1.0])
def test_an_id_outside_the_vocabulary_is_refused_naming_the_field(
    front: FrontEnd, wrong: int
) -> None:
    with pytest.raises(RequestError, match=str(wrong)) as caught:
        front.tokenize([1, wrong])
    assert caught.value.field == "prompt"


@pytest.mark.parametrize("wrong", [-1, VOCAB_SIZE, 10**6, 2**40])
def test_a_stop_id_outside_the_vocabulary_is_refused_naming_the_field(
    front: FrontEnd, wrong: int
) -> None:
    params = SamplingParams(stop_token_ids=(wrong,), min_tokens=5)
    with pytest.raises(RequestError) as caught:
        front.add(front.tokenize([1]), params)
    assert caught.value.field == "stop_token_ids"
    assert front.num_requests() == 0


def test_the_last_id_of_the_vocabulary_is_accepted(front: FrontEnd) -> None:
    params = SamplingParams(stop_token_ids=(VOCAB_SIZE - 1,))
    front.add(front.tokenize([VOCAB_SIZE - 1]), params)


def test_a_prompt_that_can_never_fit_is_refused_with_the_limit(front: FrontEnd) -> None:
    with pytest.raises(RequestError, match="128"):
        front.add(front.tokenize([1] * 129), SamplingParams())
    assert front.num_requests() == 0


def test_an_id_in_use_is_refused_until_its_request_has_ended(front: FrontEnd) -> None:
    prompt = front.tokenize([1])
    state, _ = front.add(prompt, SamplingParams(), request_id="mine")
    with pytest.raises(RequestError, match="mine"):
        front.add(prompt, SamplingParams(), request_id="mine")
    front.abort(state)
    front.add(prompt, SamplingParams(), request_id="mine")


def test_several_sequences_are_forks_of_the_first_with_seeds_that_count_up(
    front: FrontEnd,
) -> None:
    state, requests = front.add(front.tokenize([1, 2]), SamplingParams(n=3, seed=7))
    ids = state.engine_ids
    assert [request.request_id for request in requests] == list(ids)
    assert len(set(ids)) == 3
    assert [request.fork_of for request in requests] == [None, ids[0], ids[0]]
    assert [request.sampling_params.seed for request in requests] == [7, 8, 9]
    assert all(request.sampling_params.n == 1 for request in requests)


def test_a_seed_is_drawn_where_none_was_given_and_the_same_for_one_engine_seed(
    tokenizer: Tokenizer,
) -> None:
    def seeds() -> list[int | None]:
        front = FrontEnd(tokenizer, REPORT)
        drawn = [front.add(front.tokenize([1]), SamplingParams())[1] for _ in range(2)]
        return [request.sampling_params.seed for (request,) in drawn]

    assert seeds() == seeds()
    assert None not in seeds()
    assert len(set(seeds())) == 2


def test_a_greedy_request_needs_no_seed(front: FrontEnd) -> None:
    _, (request,) = front.add(front.tokenize([1]), SamplingParams(temperature=0.0))
    assert request.sampling_params.seed is None


def test_a_request_is_finished_when_all_its_sequences_are(front: FrontEnd) -> None:
    state, _ = front.add(front.tokenize([1]), SamplingParams(n=2))
    front.apply([RequestDelta(state.engine_ids[1], [5], finish_reason=FinishReason.LENGTH)])
    assert not state.is_finished
    last = RequestDelta(state.engine_ids[0], [6], finish_reason=FinishReason.LENGTH)
    changed, to_abort = front.apply([last])
    assert changed == [state]
    assert to_abort == []
    assert state.is_finished
    assert [output.token_ids for output in state.snapshot().outputs] == [[6], [5]]
    assert front.num_requests() == 0


def test_a_stop_string_asks_for_an_abort_once_and_later_tokens_are_not_added(
    front: FrontEnd, tokenizer: Tokenizer
) -> None:
    state, _ = front.add(front.tokenize([1]), SamplingParams(n=2, stop="ab"))
    a, b = tokenizer.encode("a"), tokenizer.encode("b")
    assert front.apply([RequestDelta(state.engine_ids[0], a)])[1] == []
    assert front.apply([RequestDelta(state.engine_ids[0], b)])[1] == [state.engine_ids[0]]
    assert front.apply([RequestDelta(state.engine_ids[0], b)])[1] == []
    assert state.snapshot().outputs[0].token_ids == [*a, *b]


def test_an_abort_names_only_the_sequences_that_still_run(front: FrontEnd) -> None:
    state, _ = front.add(front.tokenize([1]), SamplingParams(n=2))
    front.apply([RequestDelta(state.engine_ids[1], [5], finish_reason=FinishReason.LENGTH)])
    assert front.abort(state) == [state.engine_ids[0]]
    assert front.abort(state) == []
    assert front.apply([RequestDelta(state.engine_ids[0], [5])]) == ([], [])


def test_nothing_is_aborted_that_has_finished(front: FrontEnd) -> None:
    state, (request,) = front.add(front.tokenize([1]), SamplingParams())
    front.apply([RequestDelta(request.request_id, [5], finish_reason=FinishReason.LENGTH)])
    assert front.abort(state) == []


def test_an_error_of_the_engine_is_kept(front: FrontEnd) -> None:
    state, (request,) = front.add(front.tokenize([1]), SamplingParams())
    refused = RequestDelta(request.request_id, [], finish_reason=FinishReason.ABORT, error="no")
    front.apply([refused])
    assert str(state.error) == "no"


def test_a_snapshot_does_not_change_later(front: FrontEnd) -> None:
    state, (request,) = front.add(front.tokenize([1]), SamplingParams())
    front.apply([RequestDelta(request.request_id, [5], num_cached_tokens=3)])
    snapshot = state.snapshot()
    front.apply([RequestDelta(request.request_id, [6])])
    assert snapshot.outputs[0].token_ids == [5]
    assert snapshot.num_cached_tokens == 3
    assert snapshot.metrics.first_token_s is not None


def test_a_live_output_is_always_the_same_and_shows_every_step(front: FrontEnd) -> None:
    state, (request,) = front.add(front.tokenize([1]), SamplingParams(max_tokens=2))
    front.apply([RequestDelta(request.request_id, [5], num_cached_tokens=3)])
    live = state.live()
    assert live == state.snapshot()
    front.apply([RequestDelta(request.request_id, [6], finish_reason=FinishReason.LENGTH)])
    assert state.live() is live
    assert live == state.snapshot()
    assert live.is_finished


def test_what_was_computed_for_an_ended_request_never_reaches_a_later_one_of_its_name(
    front: FrontEnd,
) -> None:
    prompt = front.tokenize([1])
    first, (old,) = front.add(prompt, SamplingParams(), request_id="x")
    front.abort(first)
    second, (new,) = front.add(prompt, SamplingParams(), request_id="x")
    assert old.request_id != new.request_id
    assert front.apply([RequestDelta(old.request_id, [5])]) == ([], [])
    assert front.apply([RequestDelta(new.request_id, [6])]) == ([second], [])
    assert second.snapshot().outputs[0].token_ids == [6]
    assert second.snapshot().request_id == "x"


def test_ending_a_request_twice_does_not_end_a_later_one_of_its_name(front: FrontEnd) -> None:
    prompt = front.tokenize([1])
    first, (request,) = front.add(prompt, SamplingParams(), request_id="x")
    front.apply([RequestDelta(request.request_id, [5], finish_reason=FinishReason.LENGTH)])
    second, _ = front.add(prompt, SamplingParams(), request_id="x")
    assert front.abort(first) == []
    assert front.num_requests() == 1
    assert front.abort(second) == list(second.engine_ids)


def test_engine_ids_differ_even_where_names_look_like_them(front: FrontEnd) -> None:
    prompt = front.tokenize([1])
    states = [
        front.add(prompt, SamplingParams(n=2), request_id=name)[0]
        for name in ("x", "x@0", "x@0#1", "x@1", "request-5")
    ]
    states += [front.add(prompt, SamplingParams(n=2))[0] for _ in range(2)]
    assert len({one for state in states for one in state.engine_ids}) == 2 * len(states)
    assert len({state.request_id for state in states}) == len(states)


@pytest.mark.parametrize("wrong", [1.5, "1", True, None])
def test_a_priority_that_cannot_be_compared_is_refused(front: FrontEnd, wrong: Any) -> None:
    with pytest.raises(RequestError, match="priority") as caught:
        front.add(front.tokenize([1]), SamplingParams(), priority=wrong)
    assert caught.value.field == "priority"
    assert front.num_requests() == 0


@pytest.mark.parametrize("wrong", [7, b"x", "\ud800", ["x"]])
def test_a_request_id_that_cannot_be_sent_is_refused(front: FrontEnd, wrong: Any) -> None:
    with pytest.raises(RequestError) as caught:
        front.add(front.tokenize([1]), SamplingParams(), request_id=wrong)
    assert caught.value.field == "request_id"


def test_a_conversation_is_checked_against_the_vocabulary(tokenizer: Tokenizer) -> None:
    front = FrontEnd(tokenizer, replace(REPORT, vocab_size=250))  # special tokens lie above
    with pytest.raises(RequestError, match="258") as caught:
        front.tokenize_chat([{"role": "user", "content": "hi"}])
    assert caught.value.field == "messages"


def test_eos_ids_that_the_model_cannot_emit_are_left_out_and_noted(
    tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    (eos,) = tokenizer.stop_token_ids
    with caplog.at_level(logging.WARNING, logger="dougong"):
        whole = FrontEnd(tokenizer, REPORT)
        assert not caplog.records
        front = FrontEnd(tokenizer, replace(REPORT, vocab_size=eos))
    assert str(eos) in caplog.text
    for one, expected in ((whole, {eos}), (front, set())):
        _, (request,) = one.add(one.tokenize([1]), SamplingParams(min_tokens=1))
        assert request.eos_token_ids == expected


class FailingAt:
    """A detokenizer that fails at one token, and from then on."""

    def __init__(self, real: Detokenizer, token_id: int) -> None:
        self._real = real
        self._token_id = token_id
        self._has_failed = False

    def push(self, token_ids: Iterable[int]) -> str:
        ids = list(token_ids)
        self._has_failed |= self._token_id in ids
        return self.flush() if self._has_failed else self._real.push(ids)

    def flush(self) -> str:
        if self._has_failed:
            raise ValueError("no such piece")
        return self._real.flush()


class FragileTokenizer:
    """Cannot make text of token 7."""

    def __init__(self, real: Tokenizer) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def detokenizer(self, **options: Any) -> Detokenizer:
        return FailingAt(self._real.detokenizer(**options), 7)


def test_a_text_that_cannot_be_made_ends_its_request_alone(tokenizer: Tokenizer) -> None:
    front = FrontEnd(cast(Tokenizer, FragileTokenizer(tokenizer)), REPORT)
    prompt = front.tokenize([1])
    before, (a,) = front.add(prompt, SamplingParams())
    broken, requests = front.add(prompt, SamplingParams(n=2))
    after, (c,) = front.add(prompt, SamplingParams())
    changed, to_abort = front.apply(
        [
            RequestDelta(a.request_id, [65]),
            RequestDelta(requests[0].request_id, [7]),
            RequestDelta(requests[1].request_id, [66]),
            RequestDelta(c.request_id, [66]),
        ]
    )
    assert changed == [before, broken, after]
    assert to_abort == [request.request_id for request in requests]
    assert "ValueError: no such piece" in str(broken.error)
    assert broken.is_finished
    assert front.num_requests() == 2
    assert [one.snapshot().outputs[0].token_ids for one in (before, after)] == [[65], [66]]
    assert before.error is after.error is None


def test_a_text_that_cannot_be_made_hinders_no_abort(tokenizer: Tokenizer) -> None:
    fragile = FragileTokenizer(tokenizer)
    front = FrontEnd(cast(Tokenizer, fragile), REPORT)
    state, (request,) = front.add(front.tokenize([1]), SamplingParams())
    detokenizer = state._sequences[0]._detokenizer
    assert isinstance(detokenizer, FailingAt)
    detokenizer._has_failed = True
    assert front.abort(state) == [request.request_id]
    assert state.is_finished
