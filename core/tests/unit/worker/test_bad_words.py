"""Which token would complete a forbidden sequence, against a search row by row."""

from __future__ import annotations

import random

import numpy as np

from dougong.worker.bad_words import BadWords

Row = tuple[list[int], list[int], list[list[int]]]  # prompt, output, forbidden sequences


def found(rows: list[Row], places: list[int] | None = None) -> set[tuple[int, int]]:
    words = BadWords()
    token_ids = np.zeros((len(rows), 40), np.int32)
    for row, (prompt, output, sequences) in enumerate(rows):
        token_ids[row, : len(prompt) + len(output)] = prompt + output
        if sequences:
            words.set(row, sequences)
    cells = words.select(
        np.array(range(len(rows)) if places is None else places, np.int64),
        np.array([len(prompt) + len(output) for prompt, output, _ in rows], np.int32),
        np.array([len(prompt) for prompt, _, _ in rows], np.int64),
        token_ids,
    )
    if cells is None:
        return set()
    return set(zip(cells.rows.tolist(), cells.token_ids.tolist(), strict=True))


def test_a_single_token_is_always_forbidden() -> None:
    assert found([([1], [], [[5]]), ([1], [2], [])]) == {(0, 5)}


def test_the_last_token_is_forbidden_once_the_output_ends_with_the_others() -> None:
    words = [[1, 2, 3], [2, 9], [1, 7]]
    assert found([([0], [4, 1, 2], words)]) == {(0, 3), (0, 9)}
    assert found([([0], [4, 2, 1], words)]) == {(0, 7)}
    assert found([([0], [4, 4], words)]) == set()


def test_the_prompt_completes_no_word() -> None:
    assert found([([1, 2], [], [[1, 2, 3]])]) == set()
    assert found([([1], [2], [[1, 2, 3]])]) == set()
    assert found([([0], [1, 2], [[1, 2, 3]])]) == {(0, 3)}


def test_rows_that_are_not_sampled_are_left_out_and_others_stand_at_their_place() -> None:
    rows: list[Row] = [([1], [], [[5]]), ([1], [], [[6]])]
    assert found(rows, [-1, 4]) == {(4, 6)}
    assert found(rows, [-1, -1]) == set()


def test_every_row_agrees_with_a_search() -> None:
    draw = random.Random(5)
    rows: list[Row] = []
    for _ in range(60):
        prompt = draw.choices(range(3), k=draw.randint(1, 6))
        output = draw.choices(range(3), k=draw.randint(0, 9))
        words = [draw.choices(range(3), k=draw.randint(1, 4)) for _ in range(draw.randint(0, 4))]
        rows.append((prompt, output, words))
    expected = {
        (row, word[-1])
        for row, (_, output, words) in enumerate(rows)
        for word in words
        if len(word) == 1 or output[-(len(word) - 1) :] == word[:-1]
    }
    assert found(rows) == expected


def test_a_row_that_moves_takes_its_words_along() -> None:
    words = BadWords()
    words.set(1, [[5], [1, 6]])
    words.move(1, 0)
    cells = words.select(
        np.array([2, -1]), np.array([3, 3], np.int32), np.array([1, 1]), np.ones((2, 4), np.int32)
    )
    assert cells is not None
    assert cells.rows.tolist() == [2, 2]
    assert cells.token_ids.tolist() == [5, 6]
    words.clear(0)
    assert not words
