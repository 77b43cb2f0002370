from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from dougong.errors import RequestError
from dougong.messages import SchedulerOutput
from dougong.scheduler.preemption import make_way
from dougong.scheduler.state import SequenceState
from tests.unit.scheduler.harness import Harness, make_request


@pytest.mark.parametrize("caching", [True, False])
def test_preemption_changes_no_token_and_no_reason(caching: bool) -> None:
    tight = Harness(block_size=16, num_blocks=24, max_model_len=256, budget=256, caching=caching)
    roomy = Harness(block_size=16, num_blocks=200, max_model_len=256, budget=256, caching=caching)
    for harness in (tight, roomy):
        for number in range(8):
            harness.add(make_request(f"r{number}", 40, max_tokens=100))
        harness.run()
    assert tight.scheduler.stats().num_preemptions >= 1
    assert roomy.scheduler.stats().num_preemptions == 0
    for name, answer in tight.answers.items():
        assert answer.tokens == roomy.answers[name].tokens
        assert answer.reason == roomy.answers[name].reason
        assert len(answer.deltas) == 100  # nothing is sent twice


def preemptions(harness: Harness) -> list[str]:
    return [name for step in harness.steps for name in step.preempted_req_ids]


def test_the_latest_arrival_is_preempted_and_the_first_never() -> None:
    harness = Harness(block_size=4, num_blocks=8, max_num_seqs=3)
    for name in ("first", "second", "third"):
        harness.add(make_request(name, 5, max_tokens=20))
    harness.run()
    assert preemptions(harness)[0] == "third"
    assert "first" not in preemptions(harness)


def test_a_preempted_request_goes_back_before_those_that_wait() -> None:
    harness = Harness(block_size=4, num_blocks=8, max_num_seqs=3)
    for name in ("first", "second", "third", "waits"):
        harness.add(make_request(name, 5, max_tokens=20))
    harness.run()
    admitted = [new.request_id for step in harness.steps for new in step.scheduled_new_reqs]
    assert admitted.index("waits") > len(admitted) - 1 - admitted[::-1].index("third") - 1
    assert admitted.count("third") >= 2


def test_a_preempted_request_comes_back_as_new_with_all_its_tokens() -> None:
    harness = Harness(block_size=4, num_blocks=6, max_num_seqs=2, caching=False)
    for name in ("first", "second"):
        harness.add(make_request(name, 5, max_tokens=15))
    harness.run()
    again = [
        new
        for step in harness.steps
        for new in step.scheduled_new_reqs
        if new.request_id == "second" and len(new.token_ids) > 5
    ]
    assert again
    tokens = [*harness.requests["second"].prompt_token_ids, *harness.answers["second"].tokens]
    for new in again:
        assert list(new.token_ids) == tokens[: len(new.token_ids)]
        assert (new.num_prompt_tokens, new.num_computed_tokens) == (5, 0)


def test_a_preempted_request_finds_what_is_left_of_its_prefix() -> None:
    harness = Harness(block_size=4, num_blocks=9, max_num_seqs=2)
    for name in ("first", "second"):
        harness.add(make_request(name, 9, max_tokens=15))
    harness.run()
    resumed = [
        new.num_computed_tokens
        for step in harness.steps
        for new in step.scheduled_new_reqs
        if len(new.token_ids) > new.num_prompt_tokens
    ]
    assert resumed
    assert max(resumed) > 0


def test_nobody_is_admitted_in_the_step_that_had_to_preempt() -> None:
    harness = Harness(block_size=2, num_blocks=12, max_num_seqs=5)
    for number in range(9):
        harness.add(make_request(f"r{number}", 3, max_tokens=12))
    harness.run()
    preempting = [step for step in harness.steps if step.preempted_req_ids]
    assert preempting
    assert all(not step.scheduled_new_reqs for step in preempting)


def test_a_higher_priority_runs_first_and_equal_ones_by_arrival() -> None:
    harness = Harness(policy="priority", max_num_seqs=1, budget=64)
    for name, priority in (("low", 2), ("mid", 1), ("high", 0), ("mid too", 1)):
        harness.add(make_request(name, 3, max_tokens=2, priority=priority))
    harness.run()
    admitted = [new.request_id for step in harness.steps for new in step.scheduled_new_reqs]
    assert admitted == ["high", "mid", "mid too", "low"]


def test_priorities_mean_nothing_under_fcfs() -> None:
    harness = Harness(policy="fcfs", max_num_seqs=1)
    harness.add(make_request("a", 3, max_tokens=2, priority=5))
    harness.step()
    harness.add(make_request("b", 3, max_tokens=2, priority=0))
    harness.run()
    assert preemptions(harness) == []


def test_a_higher_priority_takes_the_seat_of_the_lowest_latest() -> None:
    harness = Harness(policy="priority", max_num_seqs=3)
    for name, priority in (("low", 2), ("lower", 3), ("lower too", 3)):
        harness.add(make_request(name, 3, max_tokens=9, priority=priority))
    harness.step()
    harness.add(make_request("urgent", 3, max_tokens=2, priority=0))
    output = harness.step()
    assert output is not None
    assert output.preempted_req_ids == ["lower too"]
    assert [new.request_id for new in output.scheduled_new_reqs] == ["urgent"]
    harness.run()


def test_a_higher_priority_takes_the_blocks_it_needs() -> None:
    harness = Harness(policy="priority", block_size=4, num_blocks=8, max_num_seqs=4)
    harness.add(make_request("low", 12, max_tokens=9, priority=1))
    harness.add(make_request("lower", 8, max_tokens=9, priority=2))
    harness.step()
    harness.add(make_request("urgent", 14, max_tokens=2, priority=0))
    output = harness.step()
    assert output is not None
    assert output.preempted_req_ids == ["lower"]
    assert [new.request_id for new in output.scheduled_new_reqs] == ["urgent"]
    harness.run()


def test_an_equal_priority_preempts_nobody() -> None:
    harness = Harness(policy="priority", max_num_seqs=1)
    harness.add(make_request("a", 3, max_tokens=9, priority=1))
    harness.step()
    harness.add(make_request("b", 3, max_tokens=2, priority=1))
    harness.run()
    assert preemptions(harness) == []


def test_nobody_is_preempted_for_one_that_would_not_fit_even_then() -> None:
    harness = Harness(policy="priority", block_size=4, num_blocks=8, max_num_seqs=4)
    harness.add(make_request("equal", 16, max_tokens=3, priority=0))
    harness.add(make_request("low", 4, max_tokens=9, priority=1))
    harness.step()
    harness.add(make_request("urgent", 30, max_tokens=1, priority=0))
    output = harness.step()
    assert output is not None
    assert output.preempted_req_ids == []
    harness.run()


def test_an_urgent_request_does_not_wait_behind_a_long_prompt_of_lower_priority() -> None:
    harness = Harness(policy="priority", budget=8, max_num_seqs=4)
    harness.add(make_request("long", 60, max_tokens=1, priority=1))
    harness.step()
    harness.add(make_request("urgent", 5, max_tokens=1, priority=0))
    output = harness.step()
    assert output is not None
    assert output.num_scheduled_tokens == {"urgent": 5, "long": 3}
    harness.run()


def urgent_step(harness: Harness, prompt: int | list[int]) -> SchedulerOutput:
    """Let one more request of the highest priority wait; the step that follows."""
    harness.add(make_request("urgent", prompt, max_tokens=1, priority=0))
    output = harness.step()
    assert output is not None
    return output


def test_nobody_is_preempted_for_one_that_the_headroom_keeps_out() -> None:
    harness = Harness(policy="priority", block_size=4, num_blocks=8, max_num_seqs=4)
    for name, num_tokens, priority in (("low", 5, 1), ("high", 21, 0)):
        harness.add(make_request(name, num_tokens, max_tokens=3, priority=priority))
        harness.step()
    assert harness.scheduler.allocator.pool.num_free == 0
    assert urgent_step(harness, 5).preempted_req_ids == []
    harness.run()
    assert preemptions(harness) == []


def test_a_block_that_others_still_hold_is_not_counted_as_given_up() -> None:
    harness = Harness(policy="priority", block_size=4, num_blocks=8, max_num_seqs=4)
    shared = list(range(16))
    for name, priority in (("high", 0), ("low", 1)):
        harness.add(make_request(name, [*shared, priority], max_tokens=3, priority=priority))
        harness.step()
    assert harness.scheduler.allocator.pool.num_free == 2  # and 1 more without the low one
    assert urgent_step(harness, 15).preempted_req_ids == []
    harness.run()


def test_what_a_victim_shared_with_the_urgent_one_is_needed_once_it_is_gone() -> None:
    harness = Harness(policy="priority", block_size=4, num_blocks=8, max_num_seqs=4)
    shared = list(range(12))
    for name, prompt, priority in (("high", [77] * 9, 0), ("low", [*shared, 1], 1)):
        harness.add(make_request(name, prompt, max_tokens=3, priority=priority))
        harness.step()
    assert harness.scheduler.allocator.pool.num_free == 1
    # 2 blocks beside the shared ones; without the low one 5 blocks and the headroom of 1, of 5.
    assert urgent_step(harness, [*shared, *range(50, 58)]).preempted_req_ids == []
    harness.run()


def test_nobody_is_preempted_for_one_that_finds_no_token_left_in_the_step() -> None:
    harness = Harness(policy="priority", block_size=4, num_blocks=32, max_num_seqs=2, budget=8)
    harness.add(make_request("low", 3, max_tokens=20, priority=1))
    harness.step()
    harness.add(make_request("long", 60, max_tokens=1, priority=0))
    harness.step()
    assert urgent_step(harness, 3).preempted_req_ids == []
    harness.run()
    assert preemptions(harness) == ["low"]


@pytest.mark.parametrize("seed", range(40))
def test_whoever_gives_way_gives_way_to_one_that_enters_in_that_step(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    harness = Harness(
        policy="priority",
        block_size=random.choice([1, 2, 4]),
        num_blocks=random.randint(8, 20),
        max_num_seqs=random.choice([2, 4, 6]),
        budget=random.choice([6, 9, 30]),
        max_model_len=40,
        caching=bool(seed % 2),
        groups=random.choice([1, 2]),
    )
    gave_way = list[tuple[str, str]]()

    def noting(
        head: SequenceState,
        *args: Any,
        preempt: Callable[[SequenceState], None],
        **options: Any,
    ) -> None:
        def noted(victim: SequenceState) -> None:
            gave_way.append((victim.request_id, head.request_id))
            preempt(victim)

        make_way(head, *args, preempt=noted, **options)

    monkeypatch.setattr("dougong.scheduler.scheduler.make_way", noting)
    for number in range(30):
        prompt = [*range(random.choice([0, 5, 8])), *random.choices(range(3), k=4)]
        live = list(harness.scheduler.block_tables())
        parent = random.choice(live) if live and random.random() < 0.3 else None
        if parent is not None:
            prompt = list(harness.requests[parent].prompt_token_ids)
        with contextlib.suppress(RequestError):
            harness.add(
                make_request(
                    f"r{number}",
                    prompt,
                    max_tokens=random.randint(1, 12),
                    priority=random.randint(0, 2),
                    fork_of=parent,
                )
            )
        for _ in range(random.randint(0, 3)):
            gave_way.clear()
            output = harness.step()
            entered = [new.request_id for new in output.scheduled_new_reqs] if output else []
            assert {head for _, head in gave_way} <= set(entered)
    harness.run()
