"""The requests that hold blocks, and how they come by them."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Sequence

from dougong.kv_cache import BlockAllocator, SharedBlocks, num_shared_blocks
from dougong.scheduler.queue import RequestQueue, first_to_preempt, first_to_run
from dougong.scheduler.state import Phase, SequenceState


class RunningRequests:
    """Running requests by phase, with everything a steady step needs kept ready.

    A decoding request costs a step nothing here until it needs a block or ends: `decode_counts`
    is copied whole, and `needing_block` holds exactly those whose next token has no slot yet.

    Attributes:
        decode_counts: ``{request_id: 1}`` of every decoding request.
        prefilling: In running order.
    """

    def __init__(self, allocator: BlockAllocator) -> None:
        self.allocator = allocator
        self.decode_counts: dict[str, int] = {}
        self.prefilling: list[SequenceState] = []
        self._needing_block: dict[str, SequenceState] = {}
        self._by_last = RequestQueue(first_to_preempt)

    def __len__(self) -> int:
        return len(self._by_last)

    def __iter__(self) -> Iterator[SequenceState]:
        """In no order."""
        return iter(self._by_last)

    def last(self) -> SequenceState | None:
        """The one to preempt first: worst rank, then latest arrival."""
        return self._by_last.peek()

    def has_room_for(self, state: SequenceState) -> bool:
        """Whether `try_enter` would succeed, judged by what it found at the last attempt."""
        headroom = self.headroom(state, self.last(), len(self))
        return state.num_free_needed + headroom <= self.allocator.pool.num_free

    def look_up(self, state: SequenceState) -> SharedBlocks:
        """The blocks a waiting request could share now; notes in it what it needs besides."""
        shared = self._shared_blocks(state)
        state.num_free_needed = self.allocator.num_free_needed(len(state.token_ids), shared)
        return shared

    def headroom(
        self, newcomer: SequenceState, last: SequenceState | None, num_running: int
    ) -> int:
        """Blocks to leave for ``num_running`` requests to grow into, the last of them ``last``.

        Without them a newcomer that is last in running order would be preempted within a few
        steps and its work lost; one that is not last has nothing to fear.
        """
        if last is None or newcomer.order < last.order:
            return 0
        return num_running * self.allocator.num_groups

    def try_enter(self, state: SequenceState) -> bool:
        """Give a waiting request blocks for all its known tokens, as far as possible by sharing.

        All of them at once: a prompt that was begun can then always be finished, whoever else
        comes.
        """
        if len(self) and not self.has_room_for(state):
            return False  # without a look-up, so that waiting costs a step nothing
        table, num_tokens = state.table, len(state.token_ids)
        shared = self.look_up(state)
        if not self.has_room_for(state):
            return False
        is_allocated = self.allocator.try_allocate(table, num_tokens, shared)
        assert is_allocated, "the free blocks were counted above"
        state.num_computed_tokens = num_shared_blocks(shared) * self.allocator.block_size
        state.phase = Phase.PREFILLING
        insort(self.prefilling, state, key=first_to_run)
        self._by_last.push(state)
        return True

    def start_decoding(self, state: SequenceState) -> None:
        """All known tokens of ``state`` are computed; its next token is about to come."""
        self.prefilling.remove(state)
        state.phase = Phase.DECODING
        self.decode_counts[state.request_id] = 1

    def settle(self, state: SequenceState) -> None:
        """Find out when ``state``, which got a token and goes on, must be looked at again."""
        num_tokens, num_slots = len(state.token_ids), state.table.num_tokens
        if num_tokens > num_slots:
            self.allocator.index_computed(state.table, state.token_ids, num_tokens - 1)
            self._needing_block[state.request_id] = state
            state.quiet_until = 0
        else:
            state.quiet_until = _quiet_until(state)

    def leave(self, state: SequenceState) -> None:
        """Take back the blocks of a running request; its caller sets the next phase."""
        if state.phase is Phase.DECODING:
            del self.decode_counts[state.request_id]
            self._needing_block.pop(state.request_id, None)
        else:
            self.prefilling.remove(state)
        self._by_last.discard(state)
        allocator = self.allocator
        allocator.index_computed(state.table, state.token_ids, state.num_settled_tokens)
        allocator.free(state.table)
        state.quiet_until = 0
        state.num_computed_tokens = 0
        state.num_free_needed = 0

    def grow(self, preempt: Callable[[SequenceState], None]) -> dict[str, tuple[list[int], ...]]:
        """Give every decoding request that needs one its next block.

        Args:
            preempt: Makes a running request leave and wait again; called from the last one on
                until the others have their blocks.

        Returns:
            The new blocks by request.
        """
        needing, self._needing_block = self._needing_block, {}
        if not needing:
            return {}
        grown = {}
        for state in self._in_growing_order(needing):
            while state.phase is Phase.DECODING:
                blocks = self.allocator.try_append(state.table)
                if blocks is not None:
                    grown[state.request_id] = blocks
                    state.quiet_until = _quiet_until(state)
                    break
                last = self.last()
                assert last is not None, "a request that runs alone has all blocks it can need"
                preempt(last)
        return grown

    def _in_growing_order(self, needing: dict[str, SequenceState]) -> Sequence[SequenceState]:
        states = list(needing.values())
        if len(states) * self.allocator.num_groups > self.allocator.pool.num_free:
            states.sort(key=first_to_run)  # so that whoever is preempted has not grown before
        return states

    def _shared_blocks(self, state: SequenceState) -> SharedBlocks:
        if state.must_read_prompt:
            return tuple([] for _ in range(self.allocator.num_groups))
        found = self.allocator.find_prefix(state.table, state.token_ids)
        parent = state.parent
        if parent is None or parent.phase is not Phase.DECODING:
            return found
        num_common = min(state.num_prompt_tokens, len(state.token_ids) - 1)
        forked = self.allocator.fork(parent.table, num_common)
        return max(found, forked, key=num_shared_blocks)


def _quiet_until(state: SequenceState) -> int:
    if state.request.sampling_params.logprobs is not None:
        return 0
    return min(state.max_len - 1, state.table.num_tokens)
