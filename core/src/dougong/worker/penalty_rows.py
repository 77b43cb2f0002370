"""Rows of a batch with penalties, and the tokens they hold when a step is sampled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dougong.messages.request import SamplingParams
from dougong.sampling.inputs import PenalisedRows, TokenCells


class PenaltyRows:
    """Arrays parallel to the rows of a batch.

    Args:
        max_num_seqs: Rows.
    """

    def __init__(self, max_num_seqs: int) -> None:
        self._repetition = np.ones(max_num_seqs, np.float32)
        self._frequency = np.zeros(max_num_seqs, np.float32)
        self._presence = np.zeros(max_num_seqs, np.float32)
        self._has = np.zeros(max_num_seqs, np.bool_)
        self._num_penalised = 0

    def __bool__(self) -> bool:
        return self._num_penalised > 0

    def set(self, row: int, params: SamplingParams) -> None:
        """Fill a row whose request has penalties."""
        self._repetition[row] = params.repetition_penalty
        self._frequency[row] = params.frequency_penalty
        self._presence[row] = params.presence_penalty
        self._has[row] = True
        self._num_penalised += 1

    def clear(self, row: int) -> None:
        """Forget a row."""
        self._num_penalised -= int(self._has[row])
        self._has[row] = False

    def move(self, source: int, target: int) -> None:
        """Take a row's place; ``target`` was cleared before."""
        for column in (self._repetition, self._frequency, self._presence, self._has):
            column[target] = column[source]
        self._has[source] = False

    def select(
        self,
        rows: npt.NDArray[np.intp],
        num_tokens: npt.NDArray[np.int32],
        num_prompt: npt.NDArray[np.int64],
        token_ids: npt.NDArray[np.int32],
    ) -> PenalisedRows | None:
        """Penalties of a step; ``None`` where none of its rows has any.

        Args:
            rows: That the step samples.
            num_tokens: Known tokens of these rows.
            num_prompt: How many of them are the prompt.
            token_ids: ``[num_rows, most tokens]``, of every row of the batch.
        """
        if not self._num_penalised:
            return None
        chosen = np.flatnonzero(self._has[rows])
        if not chosen.size:
            return None
        rows, ends, starts = rows[chosen], num_tokens[chosen], num_prompt[chosen]
        repetition = self._repetition[rows]
        # Repetition alone looks at the prompt.
        prompt_ends = np.where(repetition != 1, starts, 0)
        return PenalisedRows(
            rows=chosen.astype(np.int64),
            repetition=repetition,
            frequency=self._frequency[rows],
            presence=self._presence[rows],
            prompt=_cells(token_ids, rows, np.zeros_like(prompt_ends), prompt_ends),
            output=_cells(token_ids, rows, starts, ends.astype(np.int64)),
        )


def _cells(
    token_ids: npt.NDArray[np.int32],
    rows: npt.NDArray[np.intp],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> TokenCells:
    """Tokens ``starts`` to ``ends`` of each row, by place among ``rows``."""
    counts = ends - starts
    places = np.repeat(np.arange(rows.size), counts)
    before = np.cumsum(counts) - counts
    columns = np.arange(places.size) - np.repeat(before - starts, counts)
    return TokenCells(places, token_ids[rows[places], columns].astype(np.int64))
