from __future__ import annotations

import numpy as np

from dougong.messages import SamplingParams
from dougong.sampling.inputs import PenalisedRows, TokenCells
from dougong.worker.penalty_rows import PenaltyRows

TOKEN_IDS = np.array([[1, 2, 3, 4, 0], [5, 6, 7, 0, 0], [8, 9, 8, 9, 8]], np.int32)
NUM_TOKENS = np.array([4, 3, 5], np.int32)
NUM_PROMPT = np.array([2, 3, 1])


def select(rows: PenaltyRows, chosen: list[int]) -> PenalisedRows | None:
    at = np.array(chosen)
    return rows.select(at, NUM_TOKENS[at], NUM_PROMPT[at], TOKEN_IDS)


def pairs(cells: TokenCells) -> list[tuple[int, int]]:
    return list(zip(cells.rows.tolist(), cells.token_ids.tolist(), strict=True))


def with_rows(**params: SamplingParams) -> PenaltyRows:
    rows = PenaltyRows(3)
    for name, one in params.items():
        rows.set(int(name[1:]), one)
    return rows


def test_rows_without_penalties_give_nothing() -> None:
    assert select(PenaltyRows(3), [0, 1]) is None
    assert select(with_rows(r2=SamplingParams(presence_penalty=1)), [0, 1]) is None


def test_prompt_and_output_are_told_apart_for_the_rows_of_the_step() -> None:
    both = SamplingParams(repetition_penalty=1.5, frequency_penalty=0.25)
    found = select(with_rows(r0=both, r2=both), [2, 1, 0])
    assert found is not None
    assert found.rows.tolist() == [0, 2]
    assert found.repetition.tolist() == [1.5, 1.5]
    assert pairs(found.prompt) == [(0, 8), (1, 1), (1, 2)]
    assert pairs(found.output) == [(0, 9), (0, 8), (0, 9), (0, 8), (1, 3), (1, 4)]


def test_the_prompt_is_left_out_where_only_the_output_counts() -> None:
    found = select(
        with_rows(
            r0=SamplingParams(presence_penalty=0.5), r1=SamplingParams(repetition_penalty=2.0)
        ),
        [0, 1],
    )
    assert found is not None
    assert pairs(found.prompt) == [(1, 5), (1, 6), (1, 7)]
    assert pairs(found.output) == [(0, 3), (0, 4)]


def test_a_row_that_moves_takes_its_penalties_along() -> None:
    rows = with_rows(r2=SamplingParams(presence_penalty=0.5))
    rows.clear(0)
    rows.move(2, 0)
    assert select(rows, [2, 1]) is None
    found = select(rows, [0])
    assert found is not None
    assert found.presence.tolist() == [0.5]
    rows.clear(0)
    assert not rows
