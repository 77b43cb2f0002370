from __future__ import annotations

from tests.unit.scheduler.harness import Harness, make_request


def test_a_long_prompt_is_computed_in_chunks_of_the_budget() -> None:
    harness = Harness(budget=10)
    harness.add(make_request("r", 25, max_tokens=2))
    harness.run()
    assert harness.worker.chunks["r"] == [10, 10, 5, 1]


def test_the_threshold_bounds_the_chunk_of_one_prompt_and_lets_others_in() -> None:
    harness = Harness(budget=16, threshold=6)
    harness.add(make_request("long", 20, max_tokens=1))
    harness.add(make_request("short", 4, max_tokens=1))
    output = harness.step()
    assert output is not None
    assert output.num_scheduled_tokens == {"long": 6, "short": 4}
    harness.run()
    assert harness.worker.chunks["long"] == [6, 6, 6, 2]


def test_decodes_go_before_prompts_and_prompts_begun_before_new_ones() -> None:
    harness = Harness(budget=8, max_num_seqs=4)
    harness.add(make_request("decodes", 2, max_tokens=20))
    harness.step()
    harness.add(make_request("begun", 12, max_tokens=1))
    harness.step()
    harness.add(make_request("new", 3, max_tokens=1))
    output = harness.step()
    assert output is not None
    assert list(output.num_scheduled_tokens.items()) == [("decodes", 1), ("begun", 5), ("new", 2)]


def test_a_prompt_advances_in_every_step_however_many_others_decode() -> None:
    harness = Harness(budget=4, max_num_seqs=4, num_blocks=200)
    for number in range(3):
        harness.add(make_request(f"r{number}", 1, max_tokens=60))
    harness.step()
    harness.add(make_request("prompt", 12, max_tokens=1))
    harness.run()
    assert harness.worker.chunks["prompt"] == [1] * 12


def test_short_requests_that_keep_coming_do_not_starve_a_long_prompt() -> None:
    harness = Harness(budget=4, max_num_seqs=4)
    harness.add(make_request("long", 40, max_tokens=1))
    for number in range(30):
        harness.add(make_request(f"r{number}", 4, max_tokens=1))
        harness.step()
    assert harness.answers["long"].reason is not None


def test_nothing_to_do_is_no_step() -> None:
    harness = Harness()
    assert harness.step() is None
    harness.add(make_request("r", 3, max_tokens=1))
    harness.run()
    assert harness.step() is None
    assert [step.step_id for step in harness.steps] == [0]
