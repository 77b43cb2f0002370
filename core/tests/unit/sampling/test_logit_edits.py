"""Penalties, biases, allowed and suppressed tokens, against their definition row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch

from dougong.ops import Penalties
from dougong.sampling import SamplingInputs
from dougong.sampling.inputs import GrammarRows, PenalisedRows, TokenCells
from dougong.sampling.logit_edits import edit_logits

VOCAB = 11
NONE = TokenCells(np.zeros(0, np.int64), np.zeros(0, np.int64))
Tokens = Mapping[int, Sequence[int]]


def logits(num_rows: int = 4) -> torch.Tensor:
    return torch.randn(num_rows, VOCAB, generator=torch.Generator().manual_seed(3)) * 4


def edited(inputs: SamplingInputs, num_rows: int = 4) -> torch.Tensor:
    found = logits(num_rows)
    edit_logits(found, inputs, Penalties())
    return found


def penalised(
    rows: list[int], prompts: Tokens, outputs: Tokens, *numbers: list[float]
) -> PenalisedRows:
    repetition, frequency, presence = (np.array(one, np.float32) for one in numbers)
    return PenalisedRows(
        np.array(rows),
        repetition,
        frequency,
        presence,
        TokenCells.of(prompts) or NONE,
        TokenCells.of(outputs) or NONE,
    )


def by_definition(
    row: torch.Tensor,
    prompt: Sequence[int],
    output: Sequence[int],
    repetition: float,
    frequency: float,
    presence: float,
) -> torch.Tensor:
    row = row.clone()
    for token in {*prompt, *output}:
        row[token] = row[token] / repetition if row[token] > 0 else row[token] * repetition
    for token in output:
        row[token] -= frequency
    for token in set(output):
        row[token] -= presence
    return row


def test_penalties_reach_their_rows_alone() -> None:
    prompts, outputs = {0: [1, 1, 10], 1: [3]}, {0: [1, 2, 2, 2]}
    numbers = ([1.5, 2.0], [0.25, 0.5], [0.75, -1.0])
    found = edited(SamplingInputs(penalised=penalised([1, 3], prompts, outputs, *numbers)))
    expected = logits()
    expected[1] = by_definition(expected[1], prompts[0], outputs[0], 1.5, 0.25, 0.75)
    expected[3] = by_definition(expected[3], prompts[1], [], 2.0, 0.5, -1.0)
    torch.testing.assert_close(found, expected)


def test_penalties_of_every_row_are_those_of_each() -> None:
    outputs = {0: [5, 5], 1: [0, 10]}
    numbers = ([1.5, 0.5], [2.0, -2.0], [0.0, 1.0])
    found = edited(SamplingInputs(penalised=penalised([0, 1], {}, outputs, *numbers)), num_rows=2)
    for row, (own, *values) in enumerate(zip(outputs.values(), *numbers, strict=True)):
        torch.testing.assert_close(found[row], by_definition(logits(2)[row], [], own, *values))


def test_a_bias_is_added_and_other_logits_keep_every_bit() -> None:
    cells = TokenCells.of({0: [2, 10], 3: [0]})
    found = edited(SamplingInputs(biased=cells, bias=np.array([1.5, -100, 100], np.float32)))
    expected = logits()
    expected[0, 2] += 1.5
    expected[0, 10] -= 100
    expected[3, 0] += 100
    assert torch.equal(found, expected)


def test_what_is_not_allowed_cannot_be_chosen_in_rows_that_ask() -> None:
    found = edited(SamplingInputs(allowed=TokenCells.of({1: [0, 10], 2: [4]})))
    expected = logits()
    for row, kept in ((1, [0, 10]), (2, [4])):
        for token in set(range(VOCAB)) - set(kept):
            expected[row, token] = -torch.inf
    assert torch.equal(found, expected)


def test_a_suppressed_token_cannot_be_chosen_whatever_its_bias_and_though_it_is_allowed() -> None:
    cell = TokenCells.of({2: [4, 5]})
    found = edited(
        SamplingInputs(
            biased=cell,
            bias=np.array([100, 0], np.float32),
            allowed=cell,
            suppressed=TokenCells.of({2: [4, 4]}),
        )
    )
    assert found[2].isfinite().nonzero().flatten().tolist() == [5]


def test_a_bias_comes_after_the_penalties() -> None:
    own = penalised([0], {0: [7]}, {}, [2.0], [0.0], [0.0])
    found = edited(
        SamplingInputs(
            penalised=own, biased=TokenCells.of({0: [7]}), bias=np.array([10], np.float32)
        )
    )
    penalty = by_definition(logits()[0], [7], [], 2.0, 0.0, 0.0)
    torch.testing.assert_close(found[0, 7], penalty[7] + 10)


def test_no_tokens_are_no_cells() -> None:
    assert TokenCells.of({}) is None
    assert TokenCells.of({0: []}) is None


def masks(*allowed: Sequence[int], num_words: int = 1) -> torch.Tensor:
    """Bits by their definition: token ``t`` is bit ``t % 32`` of word ``t // 32``."""
    words = np.zeros((len(allowed), num_words), np.uint32)
    for row, token_ids in enumerate(allowed):
        for token_id in token_ids:
            words[row, token_id // 32] |= np.uint32(1 << token_id % 32)
    return torch.from_numpy(words.view(np.int32))


@pytest.mark.parametrize("rows", [[1, 3], [3, 1], [0, 1, 2, 3], [2, 0, 3, 1], [2]])
def test_a_grammar_keeps_the_tokens_of_its_own_row(rows: list[int]) -> None:
    kept = [[0, 4], [10], [1, 2, 3], [7, 8]][: len(rows)]
    grammar = GrammarRows(np.array(rows, np.int64), masks(*kept))
    before, found = logits(), edited(SamplingInputs(grammar=grammar))
    for row in range(4):
        own = kept[rows.index(row)] if row in rows else range(VOCAB)
        expected = [before[row, token] if token in own else -torch.inf for token in range(VOCAB)]
        assert found[row].tolist() == [float(one) for one in expected]


def test_every_bit_of_every_word_is_its_tokens() -> None:
    vocab_size = 75
    for token in range(vocab_size):
        found = torch.zeros(1, vocab_size)
        grammar = GrammarRows(np.array([0]), masks([token], num_words=3))
        edit_logits(found, SamplingInputs(grammar=grammar), Penalties())
        assert (found == 0).nonzero().tolist() == [[0, token]]


def test_bits_past_the_vocabulary_are_nobodys() -> None:
    found = torch.zeros(1, 5)
    grammar = GrammarRows(np.array([0]), torch.full((1, 1), -1, dtype=torch.int32))
    edit_logits(found, SamplingInputs(grammar=grammar), Penalties())
    assert found.tolist() == [[0.0] * 5]


def test_a_bias_cannot_bring_back_what_a_grammar_forbids() -> None:
    inputs = SamplingInputs(
        biased=TokenCells(np.array([0, 0]), np.array([2, 5])),
        bias=np.array([100.0, 1.0], np.float32),
        grammar=GrammarRows(np.array([0]), masks([5])),
    )
    found = edited(inputs)
    assert torch.isinf(found[0]).sum() == VOCAB - 1
    assert found[0, 5] == logits()[0, 5] + 1
