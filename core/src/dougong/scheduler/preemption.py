"""Who gives way to a request of higher priority."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from dougong.config.scheduler import SchedulerConfig
from dougong.scheduler.queue import first_to_preempt
from dougong.scheduler.running import RunningRequests
from dougong.scheduler.state import Phase, SequenceState


def make_way(
    head: SequenceState,
    running: RunningRequests,
    *,
    config: SchedulerConfig,
    preempt: Callable[[SequenceState], None],
) -> None:
    """Preempt the fewest requests that ``head`` outranks so that it enters in this step.

    None is preempted where even all of them would not do: their work would be lost for nothing.
    """
    last = running.last()
    if last is None or not head.outranks(last):
        return
    foresight = _Foresight(head, running)
    victims = _choose_victims(head, running, foresight, config)
    for victim in victims:
        preempt(victim)
    if victims:  # blocks they shared with the head are free now, so it needs more of those
        running.look_up(head)


def _choose_victims(
    head: SequenceState, running: RunningRequests, foresight: _Foresight, config: SchedulerConfig
) -> Sequence[SequenceState]:
    ordered = sorted(running, key=first_to_preempt)
    outranked = [state for state in ordered if head.outranks(state)]
    if foresight.num_free_at_best(outranked) < foresight.num_needed:
        return ()
    num_left = _num_tokens_left(head, running, config)
    for num_victims in range(len(outranked) + 1):
        if num_victims:
            victim = ordered[num_victims - 1]
            foresight.lose(victim)
            num_left += victim.phase is Phase.DECODING
        rest = ordered[num_victims:]
        headroom = running.headroom(head, rest[0] if rest else None, len(rest))
        has_blocks = foresight.num_needed + headroom <= foresight.num_free
        if has_blocks and len(rest) < config.max_num_seqs:
            # Without a token left in this step the head would stay out, and others in, as before.
            return ordered[:num_victims] if num_left > 0 else ()
    return ()


def _num_tokens_left(head: SequenceState, running: RunningRequests, config: SchedulerConfig) -> int:
    """The step's tokens after all that decode and the prompts that go before ``head``."""
    threshold = config.long_prefill_token_threshold
    num_left = config.max_num_batched_tokens - len(running.decode_counts)
    for state in running.prefilling:
        if not head.outranks(state):
            num_uncomputed = len(state.token_ids) - state.num_computed_tokens
            num_left -= num_uncomputed if threshold is None else min(num_uncomputed, threshold)
    return num_left


class _Foresight:
    """What would be free, and needed, once some running requests are gone; changes nothing.

    Attributes:
        num_free: Blocks that would be free. One that several requests share is so only when the
            last of them is gone.
        num_needed: Those that ``head`` would take. One it can share is among them once nobody
            else holds it.
    """

    def __init__(self, head: SequenceState, running: RunningRequests) -> None:
        self._head = head
        self._allocator = running.allocator
        pool = running.allocator.pool
        shared = running.look_up(head)
        self._shared = {b for group in shared for b in group if pool.reference_count(b)}
        self._num_lost = Counter[int]()
        self.num_free = pool.num_free
        self.num_needed = head.num_free_needed

    def num_free_at_best(self, states: Sequence[SequenceState]) -> int:
        """An upper bound of ``num_free`` with ``states`` gone, without a walk over their blocks."""
        return self.num_free + sum(len(g) for state in states for g in state.table.block_ids)

    def lose(self, state: SequenceState) -> None:
        """Imagine that ``state`` is gone too."""
        pool, num_lost = self._allocator.pool, self._num_lost
        for group in state.table.block_ids:
            for block in group:
                num_lost[block] += 1
                if num_lost[block] == pool.reference_count(block):
                    self.num_free += 1
                    self._unshare({block})
        if state is self._head.parent:  # what only it could tell the head of
            found = self._allocator.find_prefix(self._head.table, self._head.token_ids)
            self._unshare(self._shared.difference(*found))

    def _unshare(self, blocks: set[int]) -> None:
        gone = self._shared & blocks
        self._shared -= gone
        self.num_needed += len(gone)
