"""Sequences of tokens that single rows must not generate, compared with all outputs at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dougong.sampling.inputs import TokenCells

_ANY = -1  # stands before the start of a shorter sequence, and equals every token


class BadWords:
    """Rows of a batch with their forbidden sequences; the layout is made anew only when rows came,
    moved or went."""

    def __init__(self) -> None:
        self._of_row: dict[int, Sequence[Sequence[int]]] = {}
        self._is_stale = False
        self._rows = np.zeros(0, np.int64)
        self._last = np.zeros(0, np.int64)
        self._num_before = np.zeros(0, np.int64)
        self._before = np.zeros((0, 0), np.int32)  # right-aligned, `_ANY` on the left

    def __bool__(self) -> bool:
        return bool(self._of_row)

    def set(self, row: int, sequences: Sequence[Sequence[int]]) -> None:
        """Give a row its sequences, of which there is one at least; none is empty."""
        self._of_row[row] = sequences
        self._is_stale = True

    def clear(self, row: int) -> None:
        """Forget a row."""
        if self._of_row.pop(row, None) is not None:
            self._is_stale = True

    def move(self, source: int, target: int) -> None:
        """Take a row's place; ``target`` was cleared before."""
        if source in self._of_row:
            self._of_row[target] = self._of_row.pop(source)
            self._is_stale = True

    def select(
        self,
        places: npt.NDArray[np.int64],
        num_tokens: npt.NDArray[np.int32],
        num_prompt: npt.NDArray[np.int64],
        token_ids: npt.NDArray[np.int32],
    ) -> TokenCells | None:
        """Tokens that would complete a sequence now; ``None`` where there is none.

        Args:
            places: Of every row of the batch in the step; -1: it is not sampled.
            num_tokens: Known tokens of every row.
            num_prompt: How many of them are the prompt.
            token_ids: ``[num_rows, most tokens]``, of every row.
        """
        if not self._of_row:
            return None
        if self._is_stale:
            self._lay_out()
        rows = self._rows
        ends = num_tokens[rows].astype(np.int64)
        is_due = (places[rows] >= 0) & (ends - num_prompt[rows] >= self._num_before)
        width = self._before.shape[1]
        if width:
            columns = ends[:, None] + np.arange(-width, 0)
            seen = token_ids[rows[:, None], np.maximum(columns, 0)]
            is_due &= ((self._before == _ANY) | (self._before == seen)).all(axis=1)
        if not is_due.any():
            return None
        return TokenCells(places[rows[is_due]], self._last[is_due])

    def _lay_out(self) -> None:
        entries = [(row, word) for row, words in self._of_row.items() for word in words]
        self._rows = np.array([row for row, _ in entries], np.int64)
        self._last = np.array([word[-1] for _, word in entries], np.int64)
        self._num_before = np.array([len(word) - 1 for _, word in entries], np.int64)
        width = max((len(word) - 1 for _, word in entries), default=0)
        self._before = np.full((len(entries), width), _ANY, np.int32)
        for index, (_, word) in enumerate(entries):
            if len(word) > 1:
                self._before[index, width - len(word) + 1 :] = word[:-1]
        self._is_stale = False
