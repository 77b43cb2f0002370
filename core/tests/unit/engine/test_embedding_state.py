from __future__ import annotations

import pytest

from dougong.engine.embedding_state import EmbeddingState
from dougong.engine.prompts import TokenizedPrompt
from dougong.errors import DougongError, PluginError, RequestError
from dougong.messages import FinishReason, PoolingParams, RequestDelta


def state() -> EmbeddingState:
    return EmbeddingState("name", "name@0", TokenizedPrompt("text", (1, 2, 3)))


def test_the_engine_gets_the_text_and_draws_nothing_of_it() -> None:
    request = state().request(PoolingParams(dimensions=4), priority=2)
    assert request.request_id == "name@0"
    assert request.prompt_token_ids == (1, 2, 3)
    assert request.pooling_params == PoolingParams(dimensions=4)
    assert (request.priority, request.sampling_params.max_tokens) == (2, 1)


def test_the_vector_is_the_whole_answer() -> None:
    one = state()
    assert not one.is_finished
    delta = RequestDelta("name@0", [], FinishReason.STOP, num_cached_tokens=2, pooled=[0.5])
    assert not one.apply(delta)
    assert one.is_finished
    output = one.output()
    assert (output.request_id, output.prompt, output.prompt_token_ids) == (
        "name",
        "text",
        (1, 2, 3),
    )
    assert (output.embedding, output.num_cached_tokens) == ([0.5], 2)
    assert output.metrics.finished_s is not None
    assert one.abort() == []


def test_a_refusal_is_raised_when_the_vector_is_asked_for() -> None:
    one = state()
    one.apply(RequestDelta("name@0", [], FinishReason.ABORT, error="too long", error_field="input"))
    with pytest.raises(RequestError, match="too long") as caught:
        one.output()
    assert caught.value.field == "input"


def test_a_worker_that_draws_instead_is_at_fault_and_the_request_is_ended() -> None:
    one = state()
    with pytest.raises(PluginError, match="drew a token"):
        one.apply(RequestDelta("name@0", [7]))
    assert one.fail(DougongError("so")) == ["name@0"]
    with pytest.raises(DougongError, match="so"):
        one.output()


def test_an_aborted_one_is_ended_once() -> None:
    one = state()
    assert one.abort() == ["name@0"]
    assert one.is_finished
    assert one.abort() == []
