"""What a step's rows ask of the sampler, as requests come, move and go."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dougong.messages import NewRequestData, SamplingParams
from dougong.sampling.inputs import ALL_GREEDY
from dougong.worker.sampling_rows import SamplingRows
from tests.unit.worker.test_input_batch import new

GREEDY = SamplingParams(temperature=0.0)


def request(params: SamplingParams, stops: frozenset[int] = frozenset()) -> NewRequestData:
    return replace(new("a", [1, 2, 3], [0]), sampling_params=params, stop_token_ids=stops)


def rows_with(*params: SamplingParams, stops: frozenset[int] = frozenset()) -> SamplingRows:
    rows = SamplingRows(4, vocab_size=100)
    for row, one in enumerate(params):
        rows.set(row, request(one, stops))
    return rows


def ask(rows: SamplingRows, indices: list[int], num_tokens: int = 3) -> object:
    return rows.inputs(np.array(indices), np.full(len(indices), num_tokens, np.int32))


def test_all_greedy_costs_nothing() -> None:
    assert ask(rows_with(GREEDY, GREEDY), [0, 1]) is ALL_GREEDY


def test_only_rows_that_draw_are_listed_with_their_own_numbers() -> None:
    warm = SamplingParams(temperature=0.7, top_k=5, top_p=0.9, seed=11)
    inputs = rows_with(GREEDY, warm).inputs(np.array([1, 0]), np.array([3, 3], np.int32))
    assert inputs.random is not None
    assert inputs.random.rows.tolist() == [0]
    assert inputs.random.top_k.tolist() == [5]
    assert inputs.random.has_cuts
    alone = rows_with(warm).inputs(np.array([0]), np.array([3], np.int32))
    assert alone.random is not None
    assert alone.random.uniform.tolist() == inputs.random.uniform.tolist()


def test_a_top_k_above_the_vocabulary_cuts_nothing() -> None:
    rows = rows_with(SamplingParams(temperature=1.0, top_k=1000, seed=0))
    inputs = rows.inputs(np.array([0]), np.array([3], np.int32))
    assert inputs.random is not None
    assert not inputs.random.has_cuts


def test_stop_ids_are_suppressed_until_min_tokens_exist() -> None:
    params = SamplingParams(temperature=0.0, min_tokens=2, max_tokens=5)
    rows = rows_with(params, stops=frozenset({9, 4}))
    for num_tokens, expected in ((3, [(0, [4, 9])]), (4, [(0, [4, 9])]), (5, [])):
        inputs = rows.inputs(np.array([0]), np.array([num_tokens], np.int32))
        assert list(inputs.suppressed) == expected


def test_a_moved_row_keeps_what_it_asked_and_its_old_place_asks_nothing() -> None:
    rows = rows_with(
        GREEDY, SamplingParams(temperature=1.0, seed=3, logprobs=2, min_tokens=9, max_tokens=9),
        stops=frozenset({4}),
    )  # fmt: skip
    before = rows.inputs(np.array([1]), np.array([3], np.int32))
    rows.clear(0)
    rows.move(1, 0)
    after = rows.inputs(np.array([0]), np.array([3], np.int32))
    assert before.random is not None
    assert after.random is not None
    assert after.random.uniform.tolist() == before.random.uniform.tolist()
    assert after.num_logprobs == 2
    assert list(after.suppressed) == [(0, [4])]
    rows.clear(0)
    assert ask(rows, [0]) is ALL_GREEDY
