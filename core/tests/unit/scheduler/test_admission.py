from __future__ import annotations

import pytest

from dougong.errors import RequestError
from dougong.messages import FinishReason
from tests.unit.scheduler.harness import Harness, make_request


@pytest.mark.parametrize("num_tokens", [1, 111, 112, 113, 127, 128, 129, 255])
@pytest.mark.parametrize("reserved", [0, 1])
def test_the_edge_is_where_the_usable_blocks_end(num_tokens: int, reserved: int) -> None:
    harness = Harness(block_size=16, num_blocks=8, reserved=reserved, max_model_len=256, budget=256)
    usable = (8 - reserved) * 16
    if num_tokens <= usable:
        harness.add(make_request("long", num_tokens, max_tokens=1))
    else:
        with pytest.raises(RequestError, match=f"at most {usable}:") as caught:
            harness.add(make_request("long", num_tokens, max_tokens=1))
        assert caught.value.field == "prompt"
    harness.add(make_request("short", 3, max_tokens=1))
    harness.run()


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_every_group_takes_its_share_of_the_pool(groups: int) -> None:
    harness = Harness(block_size=4, num_blocks=12, groups=groups)
    assert harness.scheduler.limits.max_prompt_len == 12 // groups * 4
    harness.add(make_request("edge", 12 // groups * 4, max_tokens=1))
    harness.run()


def test_a_prompt_leaves_one_token_of_the_model_length_to_generate() -> None:
    harness = Harness(max_model_len=20)
    harness.add(make_request("edge", 19, max_tokens=None))
    harness.run()
    assert len(harness.answers["edge"].tokens) == 1
    assert harness.answers["edge"].reason is FinishReason.LENGTH
    with pytest.raises(RequestError, match="at most 19: the model length is 20"):
        harness.add(make_request("over", 20))


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(RequestError, match="no tokens"):
        Harness().add(make_request("empty", 0))


def test_an_id_in_use_is_refused_and_free_again_afterwards() -> None:
    harness = Harness()
    harness.add(make_request("a", 3))
    with pytest.raises(RequestError, match="in use"):
        harness.add(make_request("a", 3))
    harness.run()
    harness.add(make_request("a", 3))
    harness.run()


def test_a_refused_request_leaves_no_trace() -> None:
    harness = Harness(max_model_len=8)
    with pytest.raises(RequestError):
        harness.add(make_request("long", 9))
    assert not harness.scheduler.has_requests()
    assert harness.scheduler.schedule() is None


def test_growth_ends_with_the_pool_where_the_model_length_is_longer() -> None:
    harness = Harness(block_size=4, num_blocks=3, max_model_len=100)
    harness.add(make_request("r", 5, max_tokens=None))
    harness.run()
    assert len(harness.answers["r"].tokens) == 12 + 1 - 5
    assert harness.answers["r"].reason is FinishReason.LENGTH


def test_requests_are_admitted_strictly_by_arrival() -> None:
    harness = Harness(num_blocks=8, block_size=4, max_num_seqs=4)
    harness.add(make_request("runs", 16, max_tokens=10))
    harness.step()
    harness.add(make_request("large", 20, max_tokens=1))  # does not fit beside the first
    harness.add(make_request("small", 1, max_tokens=1))  # would, and must not pass
    harness.step()
    assert harness.scheduler.stats().num_waiting == 2
    harness.run()
    first_steps = {
        new.request_id: step.step_id for step in harness.steps for new in step.scheduled_new_reqs
    }
    assert first_steps["large"] <= first_steps["small"]


def test_no_more_requests_run_than_there_are_seats() -> None:
    harness = Harness(max_num_seqs=3, budget=30)
    for number in range(10):
        harness.add(make_request(f"r{number}", 2, max_tokens=3))
    harness.step()
    assert harness.scheduler.stats().num_running == 3
    harness.run()
    assert max(len(step.num_scheduled_tokens) for step in harness.steps) == 3
