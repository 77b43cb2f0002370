from __future__ import annotations

import pytest

from dougong.messages import FinishReason
from tests.unit.scheduler.fake_worker import VOCABULARY, expected_generation
from tests.unit.scheduler.harness import Harness, make_request

ALL = frozenset(range(VOCABULARY))
PROMPT = [3, 1, 4]
FREE_RUN = expected_generation(make_request("r", PROMPT, max_tokens=12), max_len=99)


def finish(harness: Harness) -> tuple[int, FinishReason | None, int | None]:
    harness.run()
    answer = harness.answers["r"]
    return len(answer.tokens), answer.reason, answer.deltas[-1].stop_token_id


def test_max_tokens_ends_with_length() -> None:
    harness = Harness()
    harness.add(make_request("r", PROMPT, max_tokens=5))
    assert finish(harness) == (5, FinishReason.LENGTH, None)


def test_eos_ends_with_stop_and_names_the_token() -> None:
    harness = Harness()
    harness.add(make_request("r", PROMPT, eos=ALL))
    assert finish(harness) == (1, FinishReason.STOP, FREE_RUN[0])


def test_eos_is_ignored_where_asked_but_stop_ids_are_not() -> None:
    harness = Harness()
    harness.add(make_request("r", PROMPT, eos=ALL, ignore_eos=True, max_tokens=5))
    assert finish(harness) == (5, FinishReason.LENGTH, None)
    harness = Harness()
    stop = FREE_RUN[3]
    harness.add(make_request("r", PROMPT, eos=ALL, ignore_eos=True, stop_token_ids=(stop,)))
    assert finish(harness) == (FREE_RUN.index(stop) + 1, FinishReason.STOP, stop)


@pytest.mark.parametrize("min_tokens", [0, 1, 4, 6])
def test_no_stop_token_counts_before_min_tokens_others_exist(min_tokens: int) -> None:
    harness = Harness(block_size=3)
    harness.add(make_request("r", PROMPT, eos=ALL, min_tokens=min_tokens, max_tokens=20))
    assert finish(harness)[:2] == (min_tokens + 1, FinishReason.STOP)


def test_a_stop_token_in_the_last_place_is_a_stop() -> None:
    harness = Harness()
    harness.add(make_request("r", PROMPT, stop_token_ids=(FREE_RUN[4],), max_tokens=5))
    num_tokens, reason, _ = finish(harness)
    assert reason is FinishReason.STOP
    assert num_tokens == FREE_RUN.index(FREE_RUN[4]) + 1


def test_a_stop_token_inside_the_prompt_does_not_count() -> None:
    harness = Harness()
    stop = next(token for token in range(VOCABULARY) if token not in FREE_RUN)
    harness.add(make_request("r", [stop, stop], stop_token_ids=(), max_tokens=2))
    assert finish(harness)[1] is FinishReason.LENGTH


def test_logprobs_go_with_the_tokens_of_those_who_asked() -> None:
    harness = Harness()
    harness.add(make_request("r", PROMPT, logprobs=0, max_tokens=9))
    harness.add(make_request("other", PROMPT, max_tokens=9))
    harness.run()
    for delta in harness.answers["r"].deltas:
        assert [entry.token_id for entry in delta.logprobs] == delta.new_token_ids
    assert all(not delta.logprobs for delta in harness.answers["other"].deltas)
