from __future__ import annotations

import pytest

from dougong.engine.front import FrontEnd
from dougong.engine.start_report import MemoryReport, StartReport
from dougong.engine.tokenizer import Tokenizer
from dougong.errors import RequestError
from dougong.messages import FinishReason, RequestDelta, SamplingParams
from dougong.scheduler import RequestLimits

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
    front.add(prompt, SamplingParams(), request_id="mine")
    with pytest.raises(RequestError, match="mine"):
        front.add(prompt, SamplingParams(), request_id="mine")
    front.abort("mine")
    front.add(prompt, SamplingParams(), request_id="mine")


def test_several_sequences_are_forks_of_the_first_with_seeds_that_count_up(
    front: FrontEnd,
) -> None:
    _, requests = front.add(front.tokenize([1, 2]), SamplingParams(n=3, seed=7), request_id="r")
    assert [request.request_id for request in requests] == ["r#0", "r#1", "r#2"]
    assert [request.fork_of for request in requests] == [None, "r#0", "r#0"]
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
    state, _ = front.add(front.tokenize([1]), SamplingParams(n=2), request_id="r")
    front.apply([RequestDelta("r#1", [5], finish_reason=FinishReason.LENGTH)])
    assert not state.is_finished
    changed, to_abort = front.apply([RequestDelta("r#0", [6], finish_reason=FinishReason.LENGTH)])
    assert changed == [state]
    assert to_abort == []
    assert state.is_finished
    assert [output.token_ids for output in state.snapshot().outputs] == [[6], [5]]
    assert front.num_requests() == 0


def test_a_stop_string_asks_for_an_abort_once_and_later_tokens_are_not_added(
    front: FrontEnd, tokenizer: Tokenizer
) -> None:
    state, _ = front.add(front.tokenize([1]), SamplingParams(n=2, stop="ab"), request_id="r")
    a, b = tokenizer.encode("a"), tokenizer.encode("b")
    assert front.apply([RequestDelta("r#0", a)])[1] == []
    assert front.apply([RequestDelta("r#0", b)])[1] == ["r#0"]
    assert front.apply([RequestDelta("r#0", b)])[1] == []
    assert state.snapshot().outputs[0].token_ids == [*a, *b]


def test_an_abort_names_only_the_sequences_that_still_run(front: FrontEnd) -> None:
    front.add(front.tokenize([1]), SamplingParams(n=2), request_id="r")
    front.apply([RequestDelta("r#1", [5], finish_reason=FinishReason.LENGTH)])
    assert front.abort("r") == ["r#0"]
    assert front.abort("r") == []
    assert front.apply([RequestDelta("r#0", [5])]) == ([], [])


def test_nothing_is_aborted_that_has_finished(front: FrontEnd) -> None:
    front.add(front.tokenize([1]), SamplingParams(), request_id="r")
    front.apply([RequestDelta("r", [5], finish_reason=FinishReason.LENGTH)])
    assert front.abort("r") == []


def test_an_error_of_the_engine_is_kept(front: FrontEnd) -> None:
    state, _ = front.add(front.tokenize([1]), SamplingParams(), request_id="r")
    front.apply([RequestDelta("r", [], finish_reason=FinishReason.ABORT, error="no")])
    assert str(state.error) == "no"


def test_a_snapshot_does_not_change_later(front: FrontEnd) -> None:
    state, _ = front.add(front.tokenize([1]), SamplingParams(), request_id="r")
    front.apply([RequestDelta("r", [5], num_cached_tokens=3)])
    snapshot = state.snapshot()
    front.apply([RequestDelta("r", [6])])
    assert snapshot.outputs[0].token_ids == [5]
    assert snapshot.num_cached_tokens == 3
    assert snapshot.metrics.first_token_s is not None
