"""Tokens that single rows of a batch ask something for, laid out so that a step takes them all at
once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dougong.sampling.inputs import TokenCells


@dataclass(frozen=True, slots=True)
class StepCells:
    """Cells of the rows that a step samples.

    Attributes:
        cells: By place in the step.
        values: float32, parallel to the cells.
    """

    cells: TokenCells
    values: npt.NDArray[np.float32]


class RowCells:
    """Token ids, each with a number, for some rows of a batch; the layout is made anew only when
    rows came, moved or went."""

    def __init__(self) -> None:
        self._of_row: dict[int, tuple[Sequence[int], Sequence[float]]] = {}
        self._rows = np.zeros(0, np.int64)
        self._token_ids = np.zeros(0, np.int64)
        self._values = np.zeros(0, np.float32)
        self._is_stale = False

    def __bool__(self) -> bool:
        return bool(self._of_row)

    def set(self, row: int, token_ids: Sequence[int], values: Sequence[float]) -> None:
        """Give a row its tokens, of which there is one at least."""
        self._of_row[row] = (token_ids, values)
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

    def select(self, places: npt.NDArray[np.int64]) -> StepCells | None:
        """Cells of a step; ``None`` where none of its rows has any.

        Args:
            places: Of every row of the batch in the step; -1: it is not sampled.
        """
        if not self._of_row:
            return None
        if self._is_stale:
            self._lay_out()
        at = places[self._rows]
        chosen = at >= 0
        if not chosen.any():
            return None
        return StepCells(TokenCells(at[chosen], self._token_ids[chosen]), self._values[chosen])

    def _lay_out(self) -> None:
        counts = [len(token_ids) for token_ids, _ in self._of_row.values()]
        self._rows = np.repeat(np.array(list(self._of_row), np.int64), counts)
        self._token_ids = np.concatenate([np.array(ids) for ids, _ in self._of_row.values()])
        self._values = np.concatenate([np.array(v, np.float32) for _, v in self._of_row.values()])
        self._is_stale = False
