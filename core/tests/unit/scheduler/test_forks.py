from __future__ import annotations

import pytest

from dougong.errors import RequestError
from tests.unit.scheduler.harness import Harness, make_request

PROMPT = list(range(10))


def add_family(harness: Harness, *, num_forks: int = 3, max_tokens: int = 6) -> None:
    harness.add(make_request("r-0", PROMPT, max_tokens=max_tokens))
    for index in range(1, num_forks + 1):
        harness.add(make_request(f"r-{index}", PROMPT, max_tokens=max_tokens, fork_of="r-0"))


@pytest.mark.parametrize("caching", [True, False])
def test_forks_share_the_full_blocks_of_the_prompt_and_compute_the_tail(caching: bool) -> None:
    harness = Harness(block_size=4, caching=caching)
    add_family(harness)
    harness.step()
    output = harness.step()
    assert output is not None
    tables = harness.scheduler.block_tables()
    shared = tables["r-0"].block_ids[0][:2]
    for index in (1, 2, 3):
        assert tables[f"r-{index}"].block_ids[0][:2] == shared
        assert output.num_scheduled_tokens[f"r-{index}"] == 2
    assert all(harness.scheduler.allocator.pool.reference_count(block) == 4 for block in shared)
    harness.run()


def test_forks_wait_for_the_prompt_and_do_not_hold_up_others() -> None:
    harness = Harness(budget=8, max_num_seqs=4)
    add_family(harness, num_forks=2)
    harness.add(make_request("other", 3, max_tokens=1))
    harness.step()
    assert harness.scheduler.stats().num_running == 1
    output = harness.step()
    assert output is not None
    assert [new.request_id for new in output.scheduled_new_reqs] == ["other"]
    harness.run()
    assert sum(harness.worker.chunks["r-1"]) == 2 + 5


def test_when_the_parent_is_aborted_the_first_fork_takes_its_place() -> None:
    harness = Harness(caching=False, budget=8)
    add_family(harness)
    harness.step()
    harness.abort("r-0")
    harness.run()
    assert sum(harness.worker.chunks["r-1"]) == 10 + 5
    assert sum(harness.worker.chunks["r-2"]) == 2 + 5


def test_an_aborted_fork_never_runs() -> None:
    harness = Harness()
    add_family(harness)
    harness.abort("r-2")
    harness.run()
    assert harness.answers["r-2"].tokens == []


def test_a_fork_of_one_that_has_ended_is_a_request_like_any_other() -> None:
    harness = Harness(caching=False)
    harness.add(make_request("parent", PROMPT, max_tokens=1))
    harness.run()
    harness.add(make_request("late", PROMPT, max_tokens=3, fork_of="parent"))
    harness.run()


def test_forks_of_a_request_that_ends_with_its_first_token_run_too() -> None:
    harness = Harness(caching=False)
    add_family(harness, max_tokens=1)
    harness.run()


def test_a_fork_with_another_prompt_is_refused() -> None:
    harness = Harness()
    harness.add(make_request("parent", PROMPT))
    with pytest.raises(RequestError, match="another prompt") as caught:
        harness.add(make_request("child", [1, 2, 3], fork_of="parent"))
    assert caught.value.field == "fork_of"


def test_the_parents_id_used_anew_does_not_confuse_its_forks() -> None:
    harness = Harness(caching=False, max_num_seqs=2)
    add_family(harness, num_forks=3, max_tokens=3)
    harness.step()
    harness.abort("r-0")
    harness.add(make_request("r-0", [9, 9, 9, 9, 9], max_tokens=20))
    harness.run()
