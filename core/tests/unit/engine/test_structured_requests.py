"""Requests with a grammar, from their arrival to their end, without an engine around them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from dougong.engine.structured_requests import StructuredRequests, StructuredStats
from dougong.errors import RequestError
from dougong.grammar import GrammarVocabulary
from dougong.messages import FinishReason, Request, RequestDelta, SamplingParams, StructuredOutput
from tests.unit.grammar.tiny import EOS, NUM_TOKENS, TURN, ids, vocabulary


@pytest.fixture
def structured() -> Iterator[StructuredRequests]:
    made = StructuredRequests(vocabulary, NUM_TOKENS)
    yield made
    made.close()


def request(request_id: str, regex: str, **fields: object) -> Request:
    params = SamplingParams(structured_output=StructuredOutput(regex=regex), **fields)  # type: ignore[arg-type]  # by name
    return Request(
        request_id=request_id,
        prompt_token_ids=(1,),
        sampling_params=params,
        eos_token_ids=frozenset({EOS, TURN}),
    )


def admitted(structured: StructuredRequests, *requests: Request) -> list[Request]:
    """Wait until every grammar is compiled."""
    taken: list[Request] = []
    for one in requests:
        structured.add(one)
    while structured.has_waiting():
        structured.wait()
        assert structured.admit(taken.append) == []
    return taken


def everything(req_ids: Sequence[str]) -> list[str]:
    return list(req_ids)


def draw(structured: StructuredRequests, **tokens: int) -> dict[str, RequestDelta]:
    """A step that draws these tokens; what is told, and that what ended is to be ended."""
    mask = structured.start_masks(lambda req_ids: [one for one in req_ids if one in tokens])
    assert mask is not None
    mask()
    deltas = [RequestDelta(req_id, [token]) for req_id, token in tokens.items()]
    told, ended = structured.take(deltas)
    assert ended == [one.request_id for one in told if one.finish_reason is not None]
    return {one.request_id: one for one in told}


def test_a_request_waits_for_its_grammar_and_holds_up_no_other() -> None:
    gate = threading.Event()

    def make() -> GrammarVocabulary:
        gate.wait()
        return vocabulary()

    structured = StructuredRequests(make, NUM_TOKENS)
    structured.add(request("a", "x"))
    taken: list[Request] = []
    assert structured.admit(taken.append) == []
    assert structured.has_waiting()
    structured.wait()  # a moment only
    assert taken == []
    assert structured.stats().num_compiling == 1
    gate.set()
    while structured.has_waiting():
        structured.wait()
        structured.admit(taken.append)
    assert [one.request_id for one in taken] == ["a"]
    structured.close()


def test_a_request_that_is_aborted_while_it_waits_is_not_scheduled() -> None:
    gate = threading.Event()

    def make() -> GrammarVocabulary:
        gate.wait()
        return vocabulary()

    structured = StructuredRequests(make, NUM_TOKENS)
    structured.add(request("a", "x"))
    assert structured.abort(["a", "unknown"]) == ["a"]
    assert not structured.has_waiting()
    gate.set()
    structured.close()


def test_requests_are_handed_on_in_order_with_min_tokens_left_to_the_masks(
    structured: StructuredRequests,
) -> None:
    names = [f"r{index}" for index in range(4)]
    taken = admitted(structured, *(request(name, "a*", min_tokens=2) for name in names))
    assert [one.request_id for one in taken] == names
    assert {one.sampling_params.min_tokens for one in taken} == {0}
    assert structured.stats().num_compiled == 1
    mask = structured.start_masks(everything)
    assert mask is not None
    words = mask().bitmask.numpy()
    assert not words[:, EOS // 32].any(), "the end may not come yet"


def test_an_id_in_use_is_refused_while_it_waits_and_while_it_runs(
    structured: StructuredRequests,
) -> None:
    structured.add(request("a", "x"))
    with pytest.raises(RequestError, match="in use"):
        structured.add(request("a", "y"))
    admitted(structured, request("b", "x"))
    with pytest.raises(RequestError, match="in use"):
        structured.add(request("b", "y"))


def test_what_cannot_be_compiled_or_scheduled_ends_alone(structured: StructuredRequests) -> None:
    def schedule(one: Request) -> None:
        if one.request_id == "full":
            raise RequestError("too long", field="prompt")

    for name, regex in (("full", "x"), ("bad", "("), ("well", "x")):
        structured.add(request(name, regex))
    ends: list[RequestDelta] = []
    while structured.has_waiting():
        structured.wait()
        ends += structured.admit(schedule)
    assert {one.request_id: one.error_field for one in ends} == {"full": "prompt", "bad": "regex"}
    assert all(one.finish_reason is FinishReason.ABORT and not one.is_internal for one in ends)
    assert structured.stats().num_following == 1


def test_masks_are_for_the_requests_that_the_step_samples(structured: StructuredRequests) -> None:
    admitted(structured, request("a", "x"), request("b", "y"))
    mask = structured.start_masks(lambda req_ids: ["b"])
    assert mask is not None
    found = mask()
    assert tuple(found.req_ids) == ("b",)
    assert found.bitmask.shape == (1, -(-NUM_TOKENS // 32))
    assert int(found.bitmask[0, ord("y") // 32]) == 1 << ord("y") % 32
    assert structured.start_masks(lambda req_ids: []) is None


def test_nothing_is_made_where_nobody_asks(structured: StructuredRequests) -> None:
    assert structured.start_masks(everything) is None
    deltas = [RequestDelta("a", [1])]
    assert structured.take(deltas) == (deltas, [])
    assert structured.stats() == StructuredStats()


def test_a_text_ends_with_the_token_that_completes_it(structured: StructuredRequests) -> None:
    admitted(structured, request("a", "xy"))
    assert draw(structured, a=ord("x"))["a"].finish_reason is None
    last = draw(structured, a=ord("y"))["a"]
    assert (last.new_token_ids, last.finish_reason) == (ids("y"), FinishReason.STOP)
    assert (last.stop_token_id, last.error) == (None, None)
    assert structured.stats().num_following == 0


def test_an_end_that_the_scheduler_knows_is_not_told_to_it(structured: StructuredRequests) -> None:
    admitted(structured, request("a", "x*"), request("b", "x*"))
    mask = structured.start_masks(everything)
    assert mask is not None
    mask()
    deltas = [
        RequestDelta("a", [EOS], finish_reason=FinishReason.STOP, stop_token_id=EOS),
        RequestDelta("b", ids("x"), finish_reason=FinishReason.LENGTH),
    ]
    assert structured.take(deltas) == (deltas, [])
    assert structured.stats().num_following == 0


def test_a_worker_that_draws_a_forbidden_token_ends_that_request_alone(
    structured: StructuredRequests,
) -> None:
    admitted(structured, request("a", "xx"), request("b", "yy"))
    told = draw(structured, a=ord("y"), b=ord("y"))
    assert told["a"].finish_reason is FinishReason.ABORT
    assert told["a"].is_internal
    assert "forbids" in str(told["a"].error)
    assert told["a"].new_token_ids == []
    assert told["b"].finish_reason is None


def test_the_end_of_a_text_is_a_forbidden_token_too(structured: StructuredRequests) -> None:
    admitted(structured, request("a", "xx"))
    mask = structured.start_masks(everything)
    assert mask is not None
    mask()
    told, ended = structured.take([RequestDelta("a", [EOS], finish_reason=FinishReason.STOP)])
    assert told[0].finish_reason is FinishReason.ABORT
    assert ended == [], "the scheduler has ended it already"


def test_a_grammar_that_fails_in_a_step_ends_its_request_as_the_clients_fault(
    structured: StructuredRequests,
) -> None:
    admitted(structured, request("a", "xx"), request("b", "yy"))
    structured._following["a"].note_mask(np.zeros(10, np.int32))
    deltas = [RequestDelta("a", [3]), RequestDelta("b", ids("y"))]
    told, ended = structured.take(deltas)
    assert (told[0].error_field, told[0].is_internal) == ("regex", False)
    assert ended == ["a"]
    assert told[1] is deltas[1]


def test_what_is_counted_says_what_it_took(structured: StructuredRequests) -> None:
    admitted(structured, request("a", "xx"), request("b", "y*"))
    draw(structured, a=ord("x"), b=ord("y"))
    stats = structured.stats()
    assert (stats.num_compiled, stats.num_masks, stats.num_following) == (2, 2, 2)
    assert stats.compile_s > 0
    assert stats.mask_s > 0
    assert structured.abort(["a", "b"]) == []
    assert structured.stats().num_following == 0
