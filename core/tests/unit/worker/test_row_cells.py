from __future__ import annotations

import numpy as np

from dougong.worker.row_cells import RowCells


def places(*of_rows: int) -> np.ndarray:
    return np.array(of_rows, np.int64)


def found(cells: RowCells, *of_rows: int) -> list[tuple[int, int, float]]:
    step = cells.select(places(*of_rows))
    if step is None:
        return []
    columns = (step.cells.rows, step.cells.token_ids, step.values)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def two_rows() -> RowCells:
    cells = RowCells()
    cells.set(2, [7, 8], [0.5, 1.5])
    cells.set(0, [9], [-1.0])
    return cells


def test_cells_stand_at_their_rows_place_in_the_step() -> None:
    assert found(two_rows(), 3, 0, 1) == [(1, 7, 0.5), (1, 8, 1.5), (3, 9, -1.0)]


def test_rows_that_are_not_sampled_are_left_out() -> None:
    assert found(two_rows(), -1, 0, 1) == [(1, 7, 0.5), (1, 8, 1.5)]
    assert two_rows().select(places(-1, 0, -1)) is None
    assert RowCells().select(places(0)) is None


def test_a_row_that_moves_takes_its_cells_along() -> None:
    cells = two_rows()
    found(cells, 0, 1, 2)
    cells.clear(0)
    cells.move(2, 0)
    assert found(cells, 4, 0, 1) == [(4, 7, 0.5), (4, 8, 1.5)]
    cells.move(1, 0)
    cells.clear(0)
    assert not cells
    assert found(cells, 0, 1, 2) == []
