"""Faults planted one at a time into allocator and scheduler: the checks must see each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import pytest

from dougong.kv_cache import BlockAllocator, BlockHasher, BlockPool, BlockTable, PrefixIndex
from dougong.scheduler.running import RunningRequests
from dougong.scheduler.state import SequenceState
from tests.unit.scheduler.harness import Harness, make_request


def exercise() -> None:
    """A busy hour in small: shared prompts, forks, preemption, eviction, both cache settings."""
    for caching in (True, False):
        harness = Harness(
            block_size=2, num_blocks=20, max_num_seqs=5, budget=9, max_model_len=32, caching=caching
        )
        names = count()
        for beginning in (0, 1, 0):
            prompt = [beginning, 5, 6, 7, 8, 4]
            name = f"r{next(names)}"
            harness.add(make_request(name, prompt, max_tokens=14))
            harness.add(make_request(f"r{next(names)}", prompt, max_tokens=14, fork_of=name))
            harness.add(make_request(f"r{next(names)}", [*prompt, 9, 9], max_tokens=14))
            for _ in range(3):
                harness.step()
        harness.run()
        harness.add(make_request("again", [0, 5, 6, 7], max_tokens=4))
        harness.add(make_request("again too", [0, 5, 6, 7, 8, 4], max_tokens=4))
        harness.run()
        assert harness.scheduler.stats().num_preemptions > 0


def free_twice(plant: pytest.MonkeyPatch) -> None:
    class FreesTwice(BlockPool):
        def release(self, blocks: Sequence[int]) -> None:
            super().release(blocks)
            self._blank.extend(block for block in blocks if not self._reference_counts[block])

    plant.setattr("dougong.kv_cache.allocator.BlockPool", FreesTwice)


def lose_a_block(plant: pytest.MonkeyPatch) -> None:
    class Forgets(BlockPool):
        def release(self, blocks: Sequence[int]) -> None:
            super().release(blocks[:-1])

    plant.setattr("dougong.kv_cache.allocator.BlockPool", Forgets)


def share_without_counting(plant: pytest.MonkeyPatch) -> None:
    class DoesNotCount(BlockPool):
        def share(self, blocks: object) -> None:
            pass

    plant.setattr("dougong.kv_cache.allocator.BlockPool", DoesNotCount)


def keep_evicted_prefixes(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(PrefixIndex, "forget", lambda self, block: False)


def hash_blocks_without_their_parents(plant: pytest.MonkeyPatch) -> None:
    def extend(
        self: BlockHasher,
        hashes: list[bytes],
        tokens: Sequence[int],
        number: int,
        salt: bytes = b"",
    ) -> None:
        blocks = (tokens[block * 2 : block * 2 + 2] for block in range(len(hashes), number))
        hashes.extend(repr(list(block)).encode() for block in blocks)

    plant.setattr(BlockHasher, "extend", extend)


def index_before_computing(plant: pytest.MonkeyPatch) -> None:
    honest = RunningRequests.try_enter

    def try_enter(self: RunningRequests, state: SequenceState) -> bool:
        is_in = honest(self, state)
        if is_in:
            self.allocator.index_computed(state.table, state.token_ids, len(state.token_ids))
        return is_in

    plant.setattr(RunningRequests, "try_enter", try_enter)


def fork_the_tail_too(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(
        BlockAllocator,
        "fork",
        lambda self, parent, num_tokens: tuple(
            group[: -(-num_tokens // self.block_size)] for group in parent.block_ids
        ),
    )


def grow_too_late(plant: pytest.MonkeyPatch) -> None:
    honest = RunningRequests.settle

    def settle(self: RunningRequests, state: SequenceState) -> None:
        state.table.num_tokens += 1
        honest(self, state)
        state.table.num_tokens -= 1

    plant.setattr(RunningRequests, "settle", settle)


def keep_the_blocks_of_the_preempted(plant: pytest.MonkeyPatch) -> None:
    def free(self: BlockAllocator, table: BlockTable) -> None:
        table.block_ids = tuple([] for _ in table.block_ids)
        table.num_tokens = table.num_indexed = 0

    plant.setattr(BlockAllocator, "free", free)


PLANTS = [
    free_twice,
    lose_a_block,
    share_without_counting,
    keep_evicted_prefixes,
    hash_blocks_without_their_parents,
    index_before_computing,
    fork_the_tail_too,
    grow_too_late,
    keep_the_blocks_of_the_preempted,
]


def test_the_honest_scheduler_passes() -> None:
    exercise()


@pytest.mark.parametrize("plant_bug", PLANTS)
def test_a_planted_bug_is_caught(
    plant_bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_bug(monkeypatch)
    with pytest.raises((AssertionError, IndexError, KeyError)):
        exercise()
