"""Choose one token per row of logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from dougong.ops import GreedySample, Logprobs, Penalties, TopKTopP
from dougong.sampling.inputs import ALL_GREEDY, RandomRows, SamplingInputs
from dougong.sampling.logit_edits import edit_logits, on_device
from dougong.sampling.top_logprobs import TopLogprobs, top_of


@dataclass(slots=True)
class SampledTokens:
    """Device tensors of one step's choice.

    Attributes:
        token_ids: int64 ``[num_rows]``.
        logprob: float32 ``[num_rows]`` of the chosen token; ``None`` where no row asked.
        top_ids: int64 ``[num_rows, k]``, best first.
        top_logprobs: float32 ``[num_rows, k]``.
    """

    token_ids: torch.Tensor
    logprob: torch.Tensor | None = None
    top_ids: torch.Tensor | None = None
    top_logprobs: torch.Tensor | None = None


class Sampler(nn.Module):
    """Calls the sampling ops in order: report, penalise, suppress, scale, cut, draw."""

    def __init__(self) -> None:
        super().__init__()
        self.penalties = Penalties()
        self.greedy_sample = GreedySample()
        self.top_k_top_p = TopKTopP()
        self.logprobs = Logprobs()

    def sample(self, logits: torch.Tensor, inputs: SamplingInputs) -> SampledTokens:
        """Choose a token for every row.

        Args:
            logits: float32 ``[num_rows, vocab_size]``; may be overwritten.
            inputs: What the rows ask for.
        """
        reported = None if inputs.num_logprobs is None else self.logprobs(logits)
        if inputs is not ALL_GREEDY:
            edit_logits(logits, inputs, self.penalties)
        token_ids = self.greedy_sample(logits)
        if inputs.random is not None:
            self._draw(logits, token_ids, inputs.random)
        if reported is None or inputs.num_logprobs is None:
            return SampledTokens(token_ids)
        top = top_of(reported, token_ids, inputs.num_logprobs)
        return SampledTokens(token_ids, top.logprob, top.top_ids, top.top_logprobs)

    def report(self, logits: torch.Tensor, token_ids: torch.Tensor, count: int) -> TopLogprobs:
        """Log-probabilities of given tokens, one per row, and of the ``count`` most likely ones.

        Args:
            logits: float32 ``[num_rows, vocab_size]``.
            token_ids: int64 ``[num_rows]``.
            count: Most likely tokens per row.
        """
        return top_of(self.logprobs(logits), token_ids, count)

    def _draw(self, logits: torch.Tensor, token_ids: torch.Tensor, random: RandomRows) -> None:
        device = logits.device
        rows = on_device(random.rows, device)
        scaled = logits[rows]
        # Only differences count; without the maximum nothing overflows, however small the divisor.
        scaled = scaled - scaled.amax(dim=-1, keepdim=True)
        scaled = scaled / on_device(random.temperature, device).unsqueeze(1)
        if random.min_p is not None:  # the likeliest token has 0 here, and always stays
            lowest = on_device(random.min_p, device).log().unsqueeze(1)
            scaled = scaled.masked_fill(scaled < lowest, -torch.inf)
        if random.has_cuts:
            top_k, top_p = on_device(random.top_k, device), on_device(random.top_p, device)
            scaled = self.top_k_top_p(scaled, top_k, top_p)
        # Inverse transform: one number per row decides, so no generator state is needed.
        cumulative = scaled.softmax(dim=-1).cumsum(dim=-1)
        target = on_device(random.uniform, device).unsqueeze(1) * cumulative[:, -1:]
        drawn = torch.searchsorted(cumulative, target, right=True).squeeze(1)
        token_ids[rows] = drawn.clamp_(max=logits.shape[1] - 1)
