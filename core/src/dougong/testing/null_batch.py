"""Sequences as a worker holds them, with the token in each slot in place of its K and V."""

from __future__ import annotations

from dougong.contracts import NewRequestData, SamplingParams, SchedulerOutput


class NullSequence:
    """One request the worker holds."""

    __slots__ = (
        "block_ids",
        "num_computed_tokens",
        "num_prompt_tokens",
        "params",
        "request_id",
        "token_ids",
    )

    def __init__(self, data: NewRequestData) -> None:
        self.request_id = data.request_id
        self.token_ids = list(data.token_ids)
        self.num_prompt_tokens = data.num_prompt_tokens
        self.params: SamplingParams = data.sampling_params
        self.block_ids = [list(group) for group in data.block_ids]
        self.num_computed_tokens = data.num_computed_tokens


class NullBatch:
    """All sequences and the cache they share.

    Args:
        block_size: Tokens per block.
        is_checking: Keep and compare the token of every slot.
    """

    def __init__(self, block_size: int, *, is_checking: bool) -> None:
        self._block_size = block_size
        self._is_checking = is_checking
        self._token_at: dict[int, int] = {}
        self._sequences: dict[str, NullSequence] = {}
        self._scheduled: list[NullSequence] = []
        self._starts: list[int] = []  # parallel to them: tokens computed before the step

    def take(self, step: SchedulerOutput) -> None:
        """Bring the sequences to where they stand after the step's computation."""
        for request_id in (*step.finished_req_ids, *step.preempted_req_ids):
            del self._sequences[request_id]
        for data in step.scheduled_new_reqs:
            assert data.request_id not in self._sequences, f"{data.request_id} is new twice"
            self._sequences[data.request_id] = NullSequence(data)
        cached = step.scheduled_cached_reqs
        for request_id, new_blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
            for group, blocks in zip(
                self._sequences[request_id].block_ids, new_blocks or (), strict=False
            ):
                group += blocks
        assert sum(step.num_scheduled_tokens.values()) == step.total_num_scheduled_tokens
        self._starts = [
            self._sequences[request_id].num_computed_tokens
            for request_id in step.num_scheduled_tokens
        ]
        self._scheduled = [
            self._compute(self._sequences[request_id], num_tokens)
            for request_id, num_tokens in step.num_scheduled_tokens.items()
        ]

    def due(self) -> list[NullSequence]:
        """Scheduled sequences whose last known token is computed; each one's cache is checked."""
        due = [s for s in self._scheduled if s.num_computed_tokens == len(s.token_ids)]
        if self._is_checking:
            for sequence in due:
                self._check(sequence)
        return due

    def prompt_tokens(self) -> dict[str, list[int]]:
        """Tokens of prompts that follow a token of the step, of sequences that ask for their
        log-probabilities and have no output."""
        found = {}
        for sequence, start in zip(self._scheduled, self._starts, strict=True):
            tokens = sequence.token_ids[: sequence.num_prompt_tokens]
            due = tokens[start + 1 : sequence.num_computed_tokens + 1]
            is_new = len(sequence.token_ids) == sequence.num_prompt_tokens
            if sequence.params.prompt_logprobs is not None and is_new and due:
                found[sequence.request_id] = due
        return found

    def _compute(self, sequence: NullSequence, num_tokens: int) -> NullSequence:
        start, end = sequence.num_computed_tokens, sequence.num_computed_tokens + num_tokens
        assert end <= len(sequence.token_ids), f"{sequence.request_id} computes unknown tokens"
        if self._is_checking:
            for position in range(start, end):
                self._token_at[self._slot(sequence, position)] = sequence.token_ids[position]
        sequence.num_computed_tokens = end
        return sequence

    def _slot(self, sequence: NullSequence, position: int) -> int:
        block, offset = divmod(position, self._block_size)
        return sequence.block_ids[0][block] * self._block_size + offset

    def _check(self, sequence: NullSequence) -> None:
        read = [
            self._token_at.get(self._slot(sequence, position))
            for position in range(len(sequence.token_ids))
        ]
        assert read == sequence.token_ids, (
            f"{sequence.request_id} reads {read} from its blocks and holds {sequence.token_ids}"
        )
