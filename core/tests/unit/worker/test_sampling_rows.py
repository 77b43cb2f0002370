"""What a step's rows ask of the sampler, as requests come, move and go."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dougong.messages import NewRequestData, SamplingParams
from dougong.sampling import SamplingInputs
from dougong.sampling.inputs import ALL_GREEDY, TokenCells
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


TOKEN_IDS = np.tile(np.array([1, 2, 3, 50, 51, 50, 52, 0], np.int32), (4, 1))


def ask(rows: SamplingRows, indices: list[int], num_tokens: int = 3) -> SamplingInputs:
    """Rows hold the first tokens of `TOKEN_IDS`; three are the prompt."""
    return rows.inputs(np.array(indices), np.full(4, num_tokens, np.int32), TOKEN_IDS)


def cells(found: TokenCells | None) -> list[tuple[int, int]]:
    assert found is not None
    return sorted(zip(found.rows.tolist(), found.token_ids.tolist(), strict=True))


def test_all_greedy_costs_nothing() -> None:
    assert ask(rows_with(GREEDY, GREEDY), [0, 1]) is ALL_GREEDY


def test_only_rows_that_draw_are_listed_with_their_own_numbers() -> None:
    warm = SamplingParams(temperature=0.7, top_k=5, top_p=0.9, seed=11)
    inputs = ask(rows_with(GREEDY, warm), [1, 0])
    assert inputs.random is not None
    assert inputs.random.rows.tolist() == [0]
    assert inputs.random.top_k.tolist() == [5]
    assert inputs.random.has_cuts
    alone = ask(rows_with(warm), [0])
    assert alone.random is not None
    assert alone.random.uniform.tolist() == inputs.random.uniform.tolist()


def test_a_top_k_above_the_vocabulary_cuts_nothing() -> None:
    rows = rows_with(SamplingParams(temperature=1.0, top_k=1000, seed=0))
    inputs = ask(rows, [0])
    assert inputs.random is not None
    assert not inputs.random.has_cuts


def test_stop_ids_are_suppressed_until_min_tokens_exist() -> None:
    params = SamplingParams(temperature=0.0, min_tokens=2, max_tokens=5)
    rows = rows_with(params, stops=frozenset({9, 4}))
    for num_tokens in (3, 4):
        assert cells(ask(rows, [0], num_tokens).suppressed) == [(0, 4), (0, 9)]
    assert ask(rows, [0], 5).suppressed is None


def test_a_moved_row_keeps_what_it_asked_and_its_old_place_asks_nothing() -> None:
    rows = rows_with(
        GREEDY, SamplingParams(temperature=1.0, seed=3, logprobs=2, min_tokens=9, max_tokens=9),
        stops=frozenset({4}),
    )  # fmt: skip
    before = ask(rows, [1])
    rows.clear(0)
    rows.move(1, 0)
    after = ask(rows, [0])
    assert before.random is not None
    assert after.random is not None
    assert after.random.uniform.tolist() == before.random.uniform.tolist()
    assert after.num_logprobs == 2
    assert cells(after.suppressed) == [(0, 4)]
    rows.clear(0)
    assert ask(rows, [0]) is ALL_GREEDY


EVERYTHING = SamplingParams(
    temperature=1.0, seed=3, min_p=0.1, repetition_penalty=1.5, logit_bias={7: 2.0, 8: -1.0},
    allowed_token_ids=[9, 7, 9], bad_token_ids=[[60], [50, 51, 61], [51, 62]], min_tokens=5,
    max_tokens=9,
)  # fmt: skip


def check_everything(inputs: SamplingInputs, place: int) -> None:
    """Of a row with the first five of `TOKEN_IDS`."""
    assert inputs.random is not None
    assert inputs.random.min_p is not None
    assert inputs.random.min_p.tolist() == [np.float32(0.1)]
    assert inputs.penalised is not None
    assert inputs.penalised.rows.tolist() == [place]
    assert cells(inputs.penalised.prompt) == [(0, 1), (0, 2), (0, 3)]
    assert cells(inputs.penalised.output) == [(0, 50), (0, 51)]
    assert cells(inputs.biased) == [(place, 7), (place, 8)]
    assert inputs.bias is not None
    assert inputs.bias.tolist() == [2.0, -1.0]
    assert cells(inputs.allowed) == [(place, 7), (place, 9)]
    assert cells(inputs.suppressed) == [(place, 4), (place, 60), (place, 61), (place, 62)]


def test_a_row_that_asks_for_everything_gets_it_and_its_neighbour_nothing() -> None:
    rows = rows_with(GREEDY, EVERYTHING, stops=frozenset({4}))
    check_everything(ask(rows, [0, 1], num_tokens=5), 1)
    check_everything(ask(rows, [1], num_tokens=5), 0)


def test_a_step_without_the_row_that_asks_has_nothing_to_edit() -> None:
    assert ask(rows_with(GREEDY, EVERYTHING), [0]) == ALL_GREEDY


def test_everything_moves_with_its_row_and_ends_with_it() -> None:
    rows = rows_with(GREEDY, EVERYTHING, stops=frozenset({4}))
    rows.clear(0)
    rows.move(1, 0)
    check_everything(ask(rows, [0], num_tokens=5), 0)
    assert ask(rows, [1]) == ALL_GREEDY
    rows.clear(0)
    assert ask(rows, [0]) is ALL_GREEDY
