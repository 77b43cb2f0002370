"""Penalties against their definition, token by token, and against `transformers`."""

from __future__ import annotations

import math

import torch
from transformers import RepetitionPenaltyLogitsProcessor

from dougong.ops import Penalties

VOCAB = 13


def oracle(
    logits: list[float],
    prompt: list[int],
    output: list[int],
    repetition: float,
    frequency: float,
    presence: float,
) -> list[float]:
    penalised = []
    for token, value in enumerate(logits):
        if token in prompt or token in output:
            value = value / repetition if value > 0 else value * repetition
        value -= output.count(token) * frequency
        penalised.append(value - presence if token in output else value)
    return penalised


def counts(sequences: list[list[int]]) -> torch.Tensor:
    rows = [torch.bincount(torch.tensor(row).long(), minlength=VOCAB) for row in sequences]
    return torch.stack(rows).int()


PROMPTS = [[0, 1, 1], [], [12, 3, 4], [5]]
OUTPUTS = [[1, 2, 2, 2], [7, 7], [], [5, 6, 6]]


def penalise(logits: torch.Tensor, *numbers: list[float]) -> torch.Tensor:
    penalties = (torch.tensor(values) for values in numbers)
    found: torch.Tensor = Penalties()(logits, counts(PROMPTS) > 0, counts(OUTPUTS), *penalties)
    return found


def test_each_row_is_penalised_by_its_own_numbers() -> None:
    torch.manual_seed(0)
    logits = torch.randn(4, VOCAB) * 5
    numbers = [1.3, 0.5, 2.0, 1.0], [0.25, -0.5, 1.0, 2.0], [1.5, 0.75, -1.0, 0.0]
    expected = [
        oracle(*row) for row in zip(logits.tolist(), PROMPTS, OUTPUTS, *numbers, strict=True)
    ]
    torch.testing.assert_close(penalise(logits, *numbers), torch.tensor(expected))


def test_repetition_is_what_transformers_does() -> None:
    torch.manual_seed(0)
    logits = torch.randn(4, VOCAB)
    found = penalise(logits, [1.7] * 4, [0.0] * 4, [0.0] * 4)
    for row, tokens in enumerate(map(list.__add__, PROMPTS, OUTPUTS)):
        processor = RepetitionPenaltyLogitsProcessor(1.7)
        expected = processor(torch.tensor([tokens]), logits[row : row + 1])
        torch.testing.assert_close(found[row], expected[0])


def test_repetition_makes_a_negative_logit_smaller_too_and_leaves_zero() -> None:
    logits = torch.zeros(4, VOCAB)
    logits[0, :3] = torch.tensor([2.0, -2.0, 0.0])
    found = penalise(logits, [2.0] * 4, [0.0] * 4, [0.0] * 4)
    assert found[0, :3].tolist() == [1.0, -4.0, 0.0]


def test_the_prompt_counts_for_repetition_alone() -> None:
    found = penalise(torch.ones(4, VOCAB), [1.0] * 4, [3.0] * 4, [5.0] * 4)
    assert found[2].tolist() == [1.0] * VOCAB
    assert found[0, :3].tolist() == [1.0, 1.0 - 3 - 5, 1.0 - 9 - 5]


def test_a_row_without_penalties_keeps_every_bit() -> None:
    torch.manual_seed(0)
    logits = torch.randn(4, VOCAB) * 1e4
    logits[:, 1:7] = torch.tensor([0.0, -0.0, 1e-45, torch.inf, -torch.inf, torch.nan])
    found = penalise(logits, [1.0] * 4, [0.0] * 4, [0.0] * 4)
    assert torch.equal(found.view(torch.int32), logits.view(torch.int32))


def test_what_is_excluded_stays_excluded_and_what_is_not_a_number_stays_none() -> None:
    logits = torch.zeros(4, VOCAB)
    logits[0, 1], logits[1, 7], logits[3, 5], logits[3, 6] = -torch.inf, torch.nan, torch.inf, 1e38
    found = penalise(logits, [1.5, 1.5, 1.5, 0.5], [-2.0] * 4, [1.0] * 4)
    assert found[0, 1] == -math.inf
    assert found[1, 7].isnan()
    assert found.isnan().sum() == 1
    assert found[3, 5] == math.inf


def test_no_rows_give_no_rows_and_strides_make_no_difference() -> None:
    none = torch.empty(0, VOCAB)
    nothing = torch.empty(0)
    found = Penalties()(none, none.bool(), none.int(), nothing, nothing, nothing)
    assert found.shape == (0, VOCAB)
    torch.manual_seed(0)
    wide = torch.randn(4, 2 * VOCAB)
    numbers = [1.3] * 4, [0.5] * 4, [0.5] * 4
    strided = wide[:, ::2]
    assert torch.equal(penalise(strided, *numbers), penalise(strided.contiguous(), *numbers))
