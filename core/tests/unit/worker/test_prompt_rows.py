from __future__ import annotations

import numpy as np

from dougong.worker.prompt_rows import PromptRows, PromptTokens

TOKEN_IDS = np.arange(40, dtype=np.int32).reshape(4, 10)  # row r holds 10 r, 10 r + 1, ...


def select(
    rows: PromptRows, chosen: list[int], computed: list[int], counts: list[int]
) -> PromptTokens | None:
    return rows.select(
        np.array(chosen), np.array(computed, np.int32), np.array(counts, np.int32), TOKEN_IDS
    )


def asking() -> PromptRows:
    """Row 1 for a prompt of six tokens, row 3 for one of three."""
    rows = PromptRows(4)
    rows.set(1, 2, 6)
    rows.set(3, 0, 3)
    return rows


def test_each_computed_token_of_a_prompt_predicts_the_next_but_the_last_one() -> None:
    found = select(asking(), [0, 1, 3], [0, 0, 0], [4, 6, 3])
    assert found is not None
    assert found.rows.tolist() == [1, 3]
    assert found.counts.tolist() == [5, 2]
    assert found.num_logprobs.tolist() == [2, 0]
    assert found.token_ids.tolist() == [11, 12, 13, 14, 15, 31, 32]
    assert found.hidden_rows.tolist() == [4, 5, 6, 7, 8, 10, 11]


def test_chunks_bring_what_the_whole_would() -> None:
    token_ids = []
    for start, count in ((0, 1), (1, 3), (4, 1), (5, 1)):
        found = select(asking(), [2, 1], [0, start], [1, count])
        if found is not None:
            assert found.hidden_rows.tolist() == list(range(1, 1 + found.token_ids.size))
            token_ids += found.token_ids.tolist()
    assert token_ids == [11, 12, 13, 14, 15]


def test_a_step_after_the_prompt_or_of_others_brings_nothing() -> None:
    assert select(asking(), [1, 3], [6, 3], [1, 1]) is None
    assert select(asking(), [0, 2], [0, 0], [5, 5]) is None


def test_a_row_that_moves_takes_its_question_along() -> None:
    rows = asking()
    rows.clear(0)
    rows.move(1, 0)
    found = select(rows, [1, 0], [0, 0], [6, 6])
    assert found is not None
    assert found.rows.tolist() == [0]
    rows.clear(3)
    rows.clear(0)
    assert not rows
