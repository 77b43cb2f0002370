from __future__ import annotations

import random

from dougong.kv_cache import BlockTable
from dougong.scheduler.queue import RequestQueue, first_to_preempt, first_to_run
from dougong.scheduler.state import SequenceState
from tests.unit.scheduler.harness import make_request


def make_state(rank: int, arrival: int) -> SequenceState:
    request = make_request(f"r{arrival}", 1)
    return SequenceState(request, order=(rank, arrival), table=BlockTable(1), max_len=9)


def drain(queue: RequestQueue) -> list[tuple[int, int]]:
    orders = []
    while (state := queue.peek()) is not None:
        orders.append(state.order)
        queue.discard(state)
    return orders


def test_the_lowest_rank_comes_first_and_equal_ones_by_arrival() -> None:
    queue = RequestQueue(first_to_run)
    for rank, arrival in ((1, 0), (0, 1), (1, 2), (0, 3)):
        queue.push(make_state(rank, arrival))
    assert drain(queue) == [(0, 1), (0, 3), (1, 0), (1, 2)]


def test_the_first_to_preempt_is_the_last_to_run() -> None:
    queue = RequestQueue(first_to_preempt)
    for rank, arrival in ((1, 0), (0, 1), (1, 2), (0, 3)):
        queue.push(make_state(rank, arrival))
    assert drain(queue) == [(1, 2), (1, 0), (0, 3), (0, 1)]


def test_a_request_that_comes_back_stands_at_its_old_place() -> None:
    queue = RequestQueue(first_to_run)
    states = [make_state(0, arrival) for arrival in range(3)]
    for state in states:
        queue.push(state)
    queue.discard(states[0])
    queue.push(states[0])
    assert drain(queue) == [(0, 0), (0, 1), (0, 2)]


def test_discarding_what_is_not_in_is_no_event() -> None:
    queue = RequestQueue(first_to_run)
    queue.discard(make_state(0, 0))
    assert len(queue) == 0
    assert queue.peek() is None


def test_discarded_requests_leave_nothing_behind_for_long() -> None:
    queue = RequestQueue(first_to_run)
    first = make_state(0, 0)
    queue.push(first)
    for arrival in range(1, 2000):
        state = make_state(0, arrival)
        queue.push(state)
        queue.discard(state)
    assert len(queue) == 1
    assert len(queue._heap) < 100
    assert queue.peek() is first


def test_random_pushes_and_discards_keep_the_order() -> None:
    rng = random.Random(1)
    queue, inside = RequestQueue(first_to_run), dict[tuple[int, int], SequenceState]()
    for arrival in range(1000):
        state = make_state(rng.randrange(5), arrival)
        queue.push(state)
        inside[state.order] = state
        if rng.random() < 0.6:
            gone = inside.pop(rng.choice(list(inside)))
            queue.discard(gone)
            assert gone not in queue
    assert sorted(state.order for state in queue) == sorted(inside)
    assert drain(queue) == sorted(inside)
