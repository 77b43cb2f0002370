"""Shares of drawn tokens against the distribution that the parameters define, by chi-square.

Seeds are fixed, so a test that passes always passes. Each distribution is held against the draws of
a wrong one as well, and must refuse them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from dougong.messages import NewRequestData, SamplingParams
from dougong.sampling import Sampler
from dougong.worker.sampling_rows import SamplingRows

COUNT = 6000
LOGITS = torch.tensor([0.0, 1.0, 2.0, 1.5, -1.0, 0.5, -0.25, 1.75])
VOCAB = LOGITS.numel()
PROMPT, OUTPUT = [2, 2, 6], [3, 3, 1]
QUANTILE = 3.719  # of the normal distribution, at 1e-4


def critical(degrees: int) -> float:
    """Chi-square that 1 right sampler in 10,000 exceeds (Wilson and Hilferty 1931)."""
    spread = 2 / (9 * degrees)
    return degrees * (1 - spread + QUANTILE * math.sqrt(spread)) ** 3


def draws(params: SamplingParams, seed_step: int = 1) -> torch.Tensor:
    """Tokens of one position of many requests that differ by seed, in one step."""
    rows = SamplingRows(COUNT, VOCAB)
    for row in range(COUNT):
        held = [*PROMPT, *OUTPUT]
        new = NewRequestData(str(row), held, len(PROMPT), params, frozenset({7}), ([],), 0)
        rows.set(row, new)
        rows._seed[row] = row * seed_step
    token_ids = np.tile(np.array([*PROMPT, *OUTPUT], np.int32), (COUNT, 1))
    num_tokens = np.full(COUNT, token_ids.shape[1], np.int32)
    inputs = rows.inputs(np.arange(COUNT), num_tokens, token_ids)
    return Sampler().sample(LOGITS.repeat(COUNT, 1), inputs).token_ids


def fits(drawn: torch.Tensor, probabilities: torch.Tensor) -> bool:
    counts = torch.bincount(drawn, minlength=VOCAB)
    possible = probabilities > 0
    if counts[~possible].any():
        return False
    if possible.sum() == 1:
        return True
    expected = probabilities[possible].double() * COUNT
    statistic = ((counts[possible] - expected) ** 2 / expected).sum()
    return bool(statistic < critical(int(possible.sum()) - 1))


def only(logits: torch.Tensor, tokens: list[int]) -> torch.Tensor:
    kept = torch.full_like(logits, -torch.inf)
    kept[tokens] = logits[tokens]
    return kept


def top_p(logits: torch.Tensor, limit: float) -> torch.Tensor:
    order = logits.softmax(-1).argsort(descending=True).tolist()
    kept, total = [], 0.0
    for token in order:
        kept.append(token)
        total += float(logits.softmax(-1)[token])
        if total >= limit:
            break
    return only(logits, kept)


def min_p(logits: torch.Tensor, share: float) -> torch.Tensor:
    probabilities = logits.softmax(-1)
    return only(logits, (probabilities >= share * probabilities.max()).nonzero().flatten().tolist())


def repetition(logits: torch.Tensor, factor: float) -> torch.Tensor:
    logits = logits.clone()
    for token in {*PROMPT, *OUTPUT}:
        logits[token] = logits[token] / factor if logits[token] > 0 else logits[token] * factor
    return logits


def counted(logits: torch.Tensor, each: float, once: float) -> torch.Tensor:
    logits = logits.clone()
    for token in set(OUTPUT):
        logits[token] -= OUTPUT.count(token) * each + once
    return logits


def biased(logits: torch.Tensor, bias: dict[int, float]) -> torch.Tensor:
    logits = logits.clone()
    for token, number in bias.items():
        logits[token] += number
    return logits


Definition = Callable[[torch.Tensor], torch.Tensor]
CASES: dict[str, tuple[SamplingParams, Definition, SamplingParams]] = {
    "temperature": (
        SamplingParams(temperature=0.7),
        lambda x: x / 0.7,
        SamplingParams(temperature=0.9),
    ),
    "top_k": (
        SamplingParams(top_k=3),
        lambda x: only(x, [2, 7, 3]),
        SamplingParams(top_k=4),
    ),
    "top_p": (
        SamplingParams(top_p=0.8),
        lambda x: top_p(x, 0.8),
        SamplingParams(top_p=0.9),
    ),
    "top_p after top_k": (
        SamplingParams(top_k=5, top_p=0.8),
        lambda x: top_p(only(x, [2, 7, 3, 1, 5]), 0.8),
        SamplingParams(top_p=0.8),
    ),
    "min_p": (
        SamplingParams(min_p=0.3),
        lambda x: min_p(x, 0.3),
        SamplingParams(min_p=0.2),
    ),
    "min_p after the temperature": (
        SamplingParams(min_p=0.3, temperature=2.0),
        lambda x: min_p(x / 2, 0.3),
        SamplingParams(min_p=0.5, temperature=2.0),
    ),
    "min_p before top_p": (
        SamplingParams(min_p=0.35, top_p=0.6),
        lambda x: top_p(min_p(x, 0.35), 0.6),
        SamplingParams(top_p=0.6),
    ),
    "repetition": (
        SamplingParams(repetition_penalty=1.5),
        lambda x: repetition(x, 1.5),
        SamplingParams(repetition_penalty=1.15),
    ),
    "frequency": (
        SamplingParams(frequency_penalty=0.5),
        lambda x: counted(x, 0.5, 0.0),
        SamplingParams(presence_penalty=0.5),
    ),
    "presence": (
        SamplingParams(presence_penalty=0.5),
        lambda x: counted(x, 0.0, 0.5),
        SamplingParams(frequency_penalty=0.5),
    ),
    "rewards": (
        SamplingParams(presence_penalty=-0.5, frequency_penalty=-0.25, repetition_penalty=0.8),
        lambda x: counted(repetition(x, 0.8), -0.25, -0.5),
        SamplingParams(presence_penalty=-0.5, frequency_penalty=-0.25),
    ),
    "bias": (
        SamplingParams(logit_bias={0: 2.0, 2: -1.5}),
        lambda x: biased(x, {0: 2.0, 2: -1.5}),
        SamplingParams(logit_bias={0: 2.0, 2: -1.0}),
    ),
    "allowed tokens": (
        SamplingParams(allowed_token_ids=[0, 4, 5]),
        lambda x: only(x, [0, 4, 5]),
        SamplingParams(allowed_token_ids=[0, 4, 5, 6]),
    ),
    "bad words": (
        SamplingParams(bad_token_ids=[[2], [3, 1, 5], [3, 0]]),
        lambda x: only(x, [0, 1, 3, 4, 6, 7]),
        SamplingParams(bad_token_ids=[[2]]),
    ),
    "min_tokens": (
        SamplingParams(min_tokens=4),
        lambda x: only(x, [0, 1, 2, 3, 4, 5, 6]),
        SamplingParams(min_tokens=3),
    ),
    "everything": (
        SamplingParams(
            temperature=1.3, min_p=0.05, top_k=6, top_p=0.95, repetition_penalty=1.2,
            frequency_penalty=0.3, presence_penalty=0.2, logit_bias={4: 3.0}, min_tokens=5,
        ),
        lambda x: top_p(
            only(
                min_p(only(biased(counted(repetition(x, 1.2), 0.3, 0.2), {4: 3.0}), [*range(7)])
                      / 1.3, 0.05),
                [4, 2, 5, 1, 0, 3],
            ),
            0.95,
        ),
        SamplingParams(
            temperature=1.3, min_p=0.05, top_k=6, top_p=0.95, repetition_penalty=1.2,
            frequency_penalty=0.3, presence_penalty=0.2, logit_bias={4: 2.7}, min_tokens=5,
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_tokens_are_drawn_with_the_probability_that_the_parameters_define(case: str) -> None:
    params, definition, _ = CASES[case]
    assert fits(draws(params), definition(LOGITS).softmax(-1))


@pytest.mark.parametrize("case", CASES)
def test_draws_of_another_distribution_are_told_apart(case: str) -> None:
    _, definition, other = CASES[case]
    assert not fits(draws(other), definition(LOGITS).softmax(-1))


def test_draws_that_follow_one_another_are_told_apart() -> None:
    drawn = draws(SamplingParams(), seed_step=0)
    assert not fits(drawn, LOGITS.softmax(-1))
