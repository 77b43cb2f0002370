"""The protocol between scheduler and worker, and what a step costs."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from dougong.errors import PluginError
from dougong.messages import ModelRunnerOutput
from tests.unit.scheduler.harness import Harness, make_request


def test_no_token_is_computed_twice_without_preemption() -> None:
    harness = Harness(budget=8, num_blocks=200)
    for number in range(6):
        harness.add(make_request(f"r{number}", 11, max_tokens=9))
    harness.run()
    assert harness.worker.num_computed_tokens == 6 * (11 + 9 - 1)


def test_blocks_are_sent_only_when_a_request_crosses_a_boundary() -> None:
    harness = Harness(block_size=4)
    harness.add(make_request("r", 6, max_tokens=12))
    harness.run()
    sent = [step.scheduled_cached_reqs.new_block_ids for step in harness.steps[1:]]
    grown = [position for position, [blocks] in enumerate(sent, start=6) if blocks is not None]
    assert grown == [8, 12, 16]


def test_a_message_never_changes_after_it_was_sent() -> None:
    harness = Harness(num_blocks=200)
    for number in range(4):
        harness.add(make_request(f"r{number}", 5, max_tokens=10 + number))
    output = harness.step()
    assert output is not None
    before = repr(output)
    second = harness.step()
    assert second is not None
    second_before = repr(second)
    harness.run()
    assert (repr(output), repr(second)) == (before, second_before)


def test_an_answer_out_of_order_is_the_workers_fault() -> None:
    harness = Harness()
    with pytest.raises(PluginError, match="step in flight is none"):
        harness.scheduler.update(ModelRunnerOutput(0, [], []))
    harness.add(make_request("r", 3))
    harness.scheduler.schedule()
    with pytest.raises(PluginError, match="answered step 1"):
        harness.scheduler.update(ModelRunnerOutput(1, ["r"], [[1]]))


def test_a_sample_too_few_or_too_many_is_the_workers_fault() -> None:
    harness = Harness(budget=8)
    harness.add(make_request("decodes", 3))
    harness.step()
    harness.add(make_request("prompt", 20))
    output = harness.scheduler.schedule()
    assert output is not None
    with pytest.raises(PluginError, match="1 were due"):
        harness.scheduler.update(ModelRunnerOutput(output.step_id, [], []))
    harness = Harness(budget=8)
    harness.add(make_request("decodes", 3))
    harness.step()
    harness.add(make_request("prompt", 20))
    output = harness.scheduler.schedule()
    assert output is not None
    with pytest.raises(PluginError, match="1 were due"):
        harness.scheduler.update(ModelRunnerOutput(output.step_id, ["prompt"], [[1]]))
    harness = Harness(budget=8)
    harness.add(make_request("prompt", 20))
    output = harness.scheduler.schedule()
    assert output is not None
    with pytest.raises(PluginError, match="0 were due"):
        harness.scheduler.update(ModelRunnerOutput(output.step_id, ["prompt"], [[1]]))


def test_a_second_step_before_the_answer_is_our_mistake() -> None:
    harness = Harness()
    harness.add(make_request("r", 3))
    harness.scheduler.schedule()
    with pytest.raises(AssertionError, match="update"):
        harness.scheduler.schedule()


def test_stats_count_everyone() -> None:
    harness = Harness(max_num_seqs=2)
    for number in range(5):
        harness.add(make_request(f"r{number}", 3))
    harness.step()
    stats = harness.scheduler.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_preemptions) == (2, 3, 0)
    assert harness.scheduler.num_requests() == 5


def count_calls(harness: Harness) -> tuple[int, int]:
    """Python functions entered by `schedule` and by `update` in a step where nothing happens."""
    calls = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    output = harness.scheduler.schedule()
    sys.setprofile(None)
    in_schedule, calls = calls, 0
    assert output is not None
    assert not any(output.scheduled_cached_reqs.new_block_ids)
    answer = harness.worker.execute(output)
    sys.setprofile(count)
    harness.scheduler.update(answer)
    sys.setprofile(None)
    return in_schedule, calls


def quiet_harness(num_running: int, *, num_waiting: int = 0, num_finished: int = 0) -> Harness:
    harness = Harness(
        block_size=64, num_blocks=num_running * 3, max_num_seqs=num_running, budget=4096
    )
    for number in range(num_finished):
        harness.add(make_request(f"f{number}", 2, max_tokens=1))
    harness.run()
    for number in range(num_running + num_waiting):
        harness.add(make_request(f"r{number}", 2, max_tokens=50))
    harness.step()
    harness.step()
    return harness


def test_a_quiet_step_enters_no_function_per_running_request() -> None:
    few, many = count_calls(quiet_harness(4)), count_calls(quiet_harness(64))
    assert many[0] == few[0]
    num_deltas = 60  # the one thing made per request and step
    assert many[1] - few[1] <= 2 * num_deltas


@pytest.mark.parametrize("policy_load", [{"num_waiting": 400}, {"num_finished": 400}])
def test_a_step_costs_the_same_however_many_wait_or_have_finished(
    policy_load: dict[str, int],
) -> None:
    base = count_calls(quiet_harness(8))
    loaded = count_calls(quiet_harness(8, **policy_load))
    assert loaded[0] - base[0] <= 8  # a look at the head of the queue
    assert loaded[1] == base[1]


def test_those_that_a_step_samples_are_known_while_it_runs() -> None:
    harness = Harness(budget=8)
    harness.add(make_request("decodes", 3))
    harness.step()
    harness.add(make_request("long", 20))
    harness.add(make_request("waits", 20))
    asked = ["waits", "unknown", "long", "decodes"]
    seen: list[list[str]] = []
    for _ in range(3):  # the long prompt takes three steps beside the one that decodes
        harness.step(lambda: seen.append(harness.scheduler.due_among(asked)))
    assert seen == [["decodes"], ["decodes"], ["long", "decodes"]]
    assert harness.scheduler.due_among(asked) == []
