"""Requests in an order that never changes while they are in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from dougong.scheduler.state import SequenceState

OrderKey = tuple[int, int]


def first_to_run(state: SequenceState) -> OrderKey:
    """Key of the waiting queue."""
    return state.order


def first_to_preempt(state: SequenceState) -> OrderKey:
    """Key of the running requests: the reverse."""
    rank, arrival = state.order
    return (-rank, -arrival)


class RequestQueue:
    """A heap with lazy deletion: push and pop in O(log n), discard in O(1) amortized.

    Args:
        key: Unique per request and constant while it is in the queue; the lowest comes first.
    """

    def __init__(self, key: Callable[[SequenceState], OrderKey]) -> None:
        self._key = key
        self._heap: list[OrderKey] = []
        self._members: dict[OrderKey, SequenceState] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[SequenceState]:
        """In no order."""
        return iter(self._members.values())

    def __contains__(self, state: SequenceState) -> bool:
        return self._members.get(self._key(state)) is state

    def push(self, state: SequenceState) -> None:
        """Put ``state``, which is not in, at its place."""
        key = self._key(state)
        self._members[key] = state
        heappush(self._heap, key)

    def peek(self) -> SequenceState | None:
        """The first, left in."""
        heap, members = self._heap, self._members
        while heap:
            state = members.get(heap[0])
            if state is not None:
                return state
            heappop(heap)
        return None

    def discard(self, state: SequenceState) -> None:
        """Take ``state`` out, wherever it stands."""
        self._members.pop(self._key(state), None)
        # What was discarded from the middle stays in the heap; it must not outgrow what is in.
        if len(self._heap) > 2 * len(self._members) + 64:
            self._heap = list(self._members)
            heapify(self._heap)
