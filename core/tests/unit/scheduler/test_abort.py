from __future__ import annotations

from tests.unit.scheduler.harness import Harness, make_request


def held(harness: Harness) -> int:
    return harness.scheduler.allocator.usage().num_held_blocks


def test_aborting_a_decoding_request_frees_its_blocks_at_once_and_tells_the_worker() -> None:
    harness = Harness()
    harness.add(make_request("gone", 6, max_tokens=50))
    harness.add(make_request("stays", 6, max_tokens=3))
    harness.step()
    assert held(harness) == 4
    assert harness.scheduler.abort(["gone"]) == ["gone"]
    assert held(harness) == 2
    harness.requests.pop("gone")
    output = harness.step()
    assert output is not None
    assert output.finished_req_ids == ["gone"]
    harness.run()
    assert "gone" not in harness.worker.residents


def test_aborting_in_the_middle_of_a_prompt_frees_its_blocks() -> None:
    harness = Harness(budget=8)
    harness.add(make_request("gone", 30))
    harness.step()
    harness.abort("gone")
    assert held(harness) == 0


def test_aborting_a_waiting_request_tells_the_worker_nothing() -> None:
    harness = Harness(max_num_seqs=1)
    harness.add(make_request("runs", 3))
    harness.add(make_request("waits", 3))
    harness.step()
    harness.abort("waits")
    output = harness.step()
    assert output is not None
    assert output.finished_req_ids == []
    harness.run()


def test_aborting_while_the_worker_computes_drops_the_token() -> None:
    harness = Harness(budget=8)
    for name, num_tokens in (("decodes", 3), ("prompt", 12)):
        harness.add(make_request(name, num_tokens))
        harness.step()
    harness.step(lambda: harness.abort("decodes"))
    assert len(harness.answers["decodes"].tokens) == 2
    harness.step(lambda: harness.abort("prompt"))
    assert held(harness) == 0


def test_an_id_used_anew_while_the_worker_computes_gets_none_of_the_old_tokens() -> None:
    harness = Harness()
    harness.add(make_request("r", 3))
    harness.step()

    def replace() -> None:
        harness.abort("r")
        harness.add(make_request("r", 5))

    harness.step(replace)
    assert harness.answers["r"].tokens == []
    harness.run()


def test_aborting_a_preempted_request_drops_it_from_the_queue() -> None:
    harness = Harness(block_size=4, num_blocks=8, max_num_seqs=3)
    for name in ("a", "b", "c"):
        harness.add(make_request(name, 5, max_tokens=20))
    while not harness.scheduler.stats().num_preemptions:
        harness.step()
    harness.abort("c")
    harness.run()


def test_unknown_ids_are_ignored() -> None:
    harness = Harness()
    assert harness.scheduler.abort(["nobody"]) == []


def test_what_ended_is_told_once_and_with_the_next_step() -> None:
    harness = Harness()
    harness.add(make_request("a", 3, max_tokens=1))
    harness.run()
    harness.add(make_request("b", 3, max_tokens=2))
    harness.run()
    assert [step.finished_req_ids for step in harness.steps] == [[], ["a"], []]
