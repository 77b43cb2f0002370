"""Pieces of sampling against their definitions, row by row."""

from __future__ import annotations

import pytest
import torch

from dougong.ops import GreedySample, Logprobs, TopKTopP


def kept_by_definition(logits: torch.Tensor, k: int, p: float) -> set[int]:
    order = logits.argsort(descending=True).tolist()
    edge = logits[order[k - 1]]
    order = [token for token in order if logits[token] >= edge]
    probs = logits[order].double().softmax(-1)
    kept, total = set(), 0.0
    for token, prob in zip(order, probs.tolist(), strict=True):
        kept.add(token)
        total += prob
        if total >= p:
            break
    return kept


@pytest.mark.parametrize(("k", "p"), [(50, 1.0), (3, 1.0), (50, 0.4), (10, 0.8), (1, 0.1)])
def test_the_cut_keeps_what_the_definition_keeps(k: int, p: float) -> None:
    torch.manual_seed(0)
    logits = torch.randn(8, 50) * 2
    cut = TopKTopP()(logits, torch.full((8,), k), torch.full((8,), p))
    for row, cut_row in zip(logits, cut, strict=True):
        kept = set(torch.isfinite(cut_row).nonzero().flatten().tolist())
        assert kept == kept_by_definition(row, k, p)
        assert torch.equal(cut_row[list(kept)], row[list(kept)])


def test_rows_are_cut_by_their_own_numbers() -> None:
    logits = torch.tensor([[3.0, 2.0, 1.0]] * 3)
    cut = TopKTopP()(logits, torch.tensor([1, 2, 3]), torch.ones(3))
    assert torch.isfinite(cut).sum(-1).tolist() == [1, 2, 3]


def test_greedy_takes_the_lowest_id_of_equal_ones() -> None:
    assert GreedySample()(torch.tensor([[1.0, 5.0, 5.0], [2.0, 2.0, 0.0]])).tolist() == [1, 0]


def test_logprobs_sum_to_one() -> None:
    torch.manual_seed(0)
    logprobs = Logprobs()(torch.randn(4, 33))
    torch.testing.assert_close(logprobs.exp().sum(-1), torch.ones(4))


def test_a_row_without_a_cut_keeps_every_token_beside_one_with_a_cut() -> None:
    torch.manual_seed(0)
    # So many tokens of hardly any weight that the float32 sum reaches 1 before the end.
    logits = torch.cat((torch.full((2, 1), 30.0), torch.randn(2, 5000)), dim=1)
    cut = TopKTopP()(logits, torch.full((2,), 5001), torch.tensor([1.0, 0.9]))
    assert torch.isfinite(cut[0]).all()
    assert torch.isfinite(cut[1]).sum() == 1
