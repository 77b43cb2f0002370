"""Drawing tokens: the distribution, the cuts, what is suppressed and what is reported."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dougong.sampling import Sampler, SamplingInputs, uniform_numbers
from dougong.sampling.inputs import RandomRows, TokenCells


def random_rows(
    count: int, *, temperature: float = 1.0, top_k: int = 5, top_p: float = 1.0, vocab: int = 5
) -> RandomRows:
    return RandomRows(
        rows=np.arange(count),
        temperature=np.full(count, temperature, np.float32),
        top_k=np.full(count, top_k),
        top_p=np.full(count, top_p, np.float32),
        uniform=uniform_numbers(np.arange(count), np.zeros(count, np.int64)),
        has_cuts=top_k < vocab or top_p < 1,
    )


LOGITS = torch.tensor([0.0, 1.0, 2.0, 1.0, -1.0])


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_tokens_are_drawn_with_their_probability(temperature: float) -> None:
    count = 8000
    inputs = SamplingInputs(random=random_rows(count, temperature=temperature))
    drawn = Sampler().sample(LOGITS.repeat(count, 1), inputs).token_ids
    shares = torch.bincount(drawn, minlength=5) / count
    expected = (LOGITS / temperature).softmax(-1)
    torch.testing.assert_close(shares, expected, atol=0.02, rtol=0)


def test_nothing_outside_the_cuts_is_drawn() -> None:
    inputs = SamplingInputs(random=random_rows(2000, top_k=3))
    drawn = Sampler().sample(LOGITS.repeat(2000, 1), inputs).token_ids
    assert set(drawn.tolist()) == {1, 2, 3}
    inputs = SamplingInputs(random=random_rows(2000, top_p=0.5))
    assert set(Sampler().sample(LOGITS.repeat(2000, 1), inputs).token_ids.tolist()) == {2}


def test_greedy_rows_beside_random_ones_stay_greedy() -> None:
    rows = random_rows(1)
    both = Sampler().sample(LOGITS.repeat(3, 1), SamplingInputs(random=rows)).token_ids
    assert both[1:].tolist() == [2, 2]
    alone = Sampler().sample(LOGITS.repeat(1, 1), SamplingInputs(random=rows)).token_ids
    assert both[0] == alone[0]


def test_suppressed_tokens_are_never_chosen_and_do_not_change_what_is_reported() -> None:
    logits = LOGITS.repeat(2, 1)
    inputs = SamplingInputs(suppressed=TokenCells.of({0: [2, 1]}), num_logprobs=2)
    sampled = Sampler().sample(logits.clone(), inputs)
    assert sampled.token_ids.tolist() == [3, 2]
    assert sampled.logprob is not None
    assert sampled.top_ids is not None
    expected = LOGITS.log_softmax(-1)
    torch.testing.assert_close(sampled.logprob, expected[[3, 2]])
    assert sampled.top_ids[0, 0] == 2


def test_zero_logprobs_report_the_drawn_token_alone() -> None:
    sampled = Sampler().sample(LOGITS.repeat(1, 1), SamplingInputs(num_logprobs=0))
    assert sampled.logprob is not None
    assert sampled.top_ids is not None
    assert sampled.top_ids.shape == (1, 0)


def test_the_smallest_temperature_takes_the_most_likely_token() -> None:
    logits = torch.tensor([[5.0, 9.0, 8.9, -3.0, 0.0]]).repeat(50, 1) * 1e3
    inputs = SamplingInputs(random=random_rows(50, temperature=1e-4))
    assert set(Sampler().sample(logits, inputs).token_ids.tolist()) == {1}


def test_more_logprobs_than_tokens_report_every_token() -> None:
    sampled = Sampler().sample(LOGITS.repeat(1, 1), SamplingInputs(num_logprobs=20))
    assert sampled.top_ids is not None
    assert sampled.top_ids.shape == (1, 5)
