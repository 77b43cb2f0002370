from __future__ import annotations

import torch

from dougong.sampling.top_logprobs import joined, top_of

LOGPROBS = torch.tensor([[0.0, 1.0, 2.0], [0.5, 0.0, -1.0], [0.0, 3.0, 1.0]]).log_softmax(-1)
TOKEN_IDS = torch.tensor([0, 2, 1])


def test_the_given_token_and_the_likeliest_ones_are_reported() -> None:
    found = top_of(LOGPROBS, TOKEN_IDS, 2)
    assert torch.equal(found.logprob, LOGPROBS[[0, 1, 2], TOKEN_IDS])
    assert found.top_ids.tolist() == [[2, 1], [0, 1], [1, 2]]
    assert torch.equal(found.top_logprobs, LOGPROBS.gather(1, found.top_ids))


def test_more_than_there_are_is_all_of_them() -> None:
    assert top_of(LOGPROBS, TOKEN_IDS, 20).top_ids.shape == (3, 3)
    assert top_of(LOGPROBS, TOKEN_IDS, 0).top_ids.shape == (3, 0)


def test_parts_make_the_whole() -> None:
    parts = [top_of(LOGPROBS[rows], TOKEN_IDS[rows], 2) for rows in ([0, 1], [2])]
    whole, found = top_of(LOGPROBS, TOKEN_IDS, 2), joined(parts)
    assert joined(parts[:1]) is parts[0]
    for name in ("logprob", "top_ids", "top_logprobs"):
        assert torch.equal(getattr(found, name), getattr(whole, name))
