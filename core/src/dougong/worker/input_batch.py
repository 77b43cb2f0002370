"""Requests a worker holds, as rows of host arrays; a step's inputs are computed from them at
once."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from dougong.messages.step import CachedRequestData, NewRequestData, SchedulerOutput
from dougong.sampling import SamplingInputs
from dougong.worker.sampling_rows import SamplingRows

NO_LORA = -1
"""A row that uses no adapter."""


class InputBatch:
    """Rows ``0`` to ``num_reqs - 1`` are live, in no particular order.

    Args:
        max_num_seqs: Rows.
        max_model_len: Tokens per row.
        block_size: Tokens per block, in every group.
        num_groups: KV cache groups.
        vocab_size: For sampling without a cut.

    Attributes:
        max_blocks: Blocks per row, in every group.
    """

    def __init__(
        self,
        *,
        max_num_seqs: int,
        max_model_len: int,
        block_size: int,
        num_groups: int,
        vocab_size: int,
    ) -> None:
        self.max_blocks = max_blocks = -(-max_model_len // block_size)
        self.req_ids: list[str] = []
        self.row_of: dict[str, int] = {}
        # Zeroed pages are given by the system when first touched, so idle rows cost nothing.
        self.token_ids = np.zeros((max_num_seqs, max_model_len + 1), np.int32)
        self.num_tokens = np.zeros(max_num_seqs, np.int32)
        self.num_computed = np.zeros(max_num_seqs, np.int32)
        self.block_tables = [
            np.zeros((max_num_seqs, max_blocks), np.int32) for _ in range(num_groups)
        ]
        self.num_blocks = np.zeros((num_groups, max_num_seqs), np.int32)
        self.sampling = SamplingRows(max_num_seqs, vocab_size)
        self.lora_slots = np.full(max_num_seqs, NO_LORA, np.int64)

    @property
    def num_reqs(self) -> int:
        """Live rows."""
        return len(self.req_ids)

    def update(self, step: SchedulerOutput) -> None:
        """Apply a step's changes, in the order `SchedulerOutput` prescribes."""
        for req_id in step.finished_req_ids:
            self.remove(req_id)
        for req_id in step.preempted_req_ids:
            self.remove(req_id)
        for new in step.scheduled_new_reqs:
            self._add(new)
        self._extend_blocks(step.scheduled_cached_reqs)

    def append_tokens(self, rows: npt.NDArray[np.intp], token_ids: npt.NDArray[np.int64]) -> None:
        """Put one sampled token at the end of each row."""
        ends = self.num_tokens[rows]
        self.token_ids[rows, ends] = token_ids
        self.num_tokens[rows] = ends + 1

    def rows_of(self, req_ids: Iterable[str]) -> npt.NDArray[np.intp]:
        """Rows of requests, in their order."""
        row_of = self.row_of
        return np.array([row_of[req_id] for req_id in req_ids], np.intp)

    def sampling_inputs(self, rows: npt.NDArray[np.intp]) -> SamplingInputs:
        """What a step that samples these rows asks of the sampler."""
        return self.sampling.inputs(rows, self.num_tokens, self.token_ids)

    def _add(self, new: NewRequestData) -> None:
        row = len(self.req_ids)
        self.req_ids.append(new.request_id)
        self.row_of[new.request_id] = row
        count = len(new.token_ids)
        self.token_ids[row, :count] = new.token_ids
        self.num_tokens[row] = count
        self.num_computed[row] = new.num_computed_tokens
        self.num_blocks[:, row] = 0
        self._append_blocks(row, new.block_ids)
        self.sampling.set(row, new)
        self.lora_slots[row] = new.lora_slot

    def _extend_blocks(self, cached: CachedRequestData) -> None:
        for req_id, block_ids in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if block_ids is not None:
                self._append_blocks(self.row_of[req_id], block_ids)

    def _append_blocks(self, row: int, block_ids: tuple[list[int], ...]) -> None:
        for group, new in enumerate(block_ids):
            start = self.num_blocks[group, row]
            self.block_tables[group][row, start : start + len(new)] = new
            self.num_blocks[group, row] = start + len(new)

    def remove(self, req_id: str) -> None:
        """Drop a request; the last row takes its place."""
        row = self.row_of.pop(req_id, None)
        if row is None:  # it ended before it was ever sent
            return
        self.sampling.clear(row)
        last = len(self.req_ids) - 1
        moved = self.req_ids.pop()
        if row == last:
            return
        self.req_ids[row] = moved
        self.row_of[moved] = row
        count = self.num_tokens[last]
        self.token_ids[row, :count] = self.token_ids[last, :count]
        self.num_tokens[row] = count
        self.num_computed[row] = self.num_computed[last]
        for group, table in enumerate(self.block_tables):
            blocks = self.num_blocks[group, last]
            table[row, :blocks] = table[last, :blocks]
        self.num_blocks[:, row] = self.num_blocks[:, last]
        self.sampling.move(last, row)
        self.lora_slots[row] = self.lora_slots[last]
