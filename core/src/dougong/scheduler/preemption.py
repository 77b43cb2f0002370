"""Who gives way to a request of higher priority."""

from __future__ import annotations

from collections.abc import Callable

from dougong.scheduler.running import RunningRequests
from dougong.scheduler.state import SequenceState


def make_way(
    head: SequenceState,
    running: RunningRequests,
    *,
    max_num_seqs: int,
    preempt: Callable[[SequenceState], None],
) -> None:
    """Preempt requests that ``head`` outranks until there is a seat and blocks for it.

    None is preempted where even all of them would not do: their work would be lost for nothing.
    """
    last = running.last()
    if last is None or not head.outranks(last):
        return
    allocator = running.allocator
    head.num_free_needed = allocator.num_free_needed(
        len(head.token_ids), allocator.find_prefix(head.table, head.token_ids)
    )
    if _could_fit(head, running) < head.num_free_needed:
        return
    while last is not None and head.outranks(last):
        if len(running) < max_num_seqs and running.has_room_for(head):
            return
        preempt(last)
        last = running.last()


def _could_fit(head: SequenceState, running: RunningRequests) -> int:
    """Blocks free at best after preempting all that ``head`` outranks."""
    num_blocks = running.allocator.pool.num_free
    for state in running:
        if head.outranks(state):
            num_blocks += sum(map(len, state.table.block_ids))
    return num_blocks
