from __future__ import annotations

import numpy as np
import torch

from dougong.messages import TokenLogprobs
from dougong.sampling import TopLogprobs
from dougong.worker.prompt_rows import PromptTokens
from dougong.worker.reports import prompt_logprobs, sampled_logprobs

FOUND = TopLogprobs(
    torch.tensor([-0.5, -1.5, -2.5]),
    torch.tensor([[4, 5], [6, 7], [8, 9]]),
    torch.tensor([[-0.5, -1.0], [-0.25, -1.25], [-0.75, -2.0]]),
)


def test_each_row_gets_as_many_as_it_asked_for() -> None:
    found = sampled_logprobs([4, 1, 2], FOUND, [1, None, 0])
    assert found == [TokenLogprobs(4, -0.5, ((4, -0.5),)), None, TokenLogprobs(2, -2.5)]


def test_prompts_get_their_own_tokens_in_order() -> None:
    prompts = PromptTokens(
        rows=np.array([3, 0]),
        counts=np.array([1, 2]),
        num_logprobs=np.array([2, 1]),
        hidden_rows=np.array([0, 5, 6]),
        token_ids=np.array([11, 12, 13]),
    )
    assert prompt_logprobs(prompts, FOUND) == [
        [TokenLogprobs(11, -0.5, ((4, -0.5), (5, -1.0)))],
        [TokenLogprobs(12, -1.5, ((6, -0.25),)), TokenLogprobs(13, -2.5, ((8, -0.75),))],
    ]
