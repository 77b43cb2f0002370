"""Choose one token per row of logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import torch
from torch import nn

from dougong.ops import GreedySample, Logprobs, TopKTopP
from dougong.sampling.inputs import RandomRows, SamplingInputs


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
    """Calls the sampling ops in order: report, suppress, scale, cut, draw."""

    def __init__(self) -> None:
        super().__init__()
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
        for row, token_ids in inputs.suppressed:
            ids = torch.tensor(token_ids).to(logits.device, non_blocking=True)
            logits[row, ids] = -torch.inf
        token_ids = self.greedy_sample(logits)
        if inputs.random is not None:
            self._draw(logits, token_ids, inputs.random)
        if reported is None or inputs.num_logprobs is None:
            return SampledTokens(token_ids)
        top = reported.topk(min(inputs.num_logprobs, logits.shape[1]), dim=-1)
        chosen = reported.gather(1, token_ids.unsqueeze(1)).squeeze(1)
        return SampledTokens(token_ids, chosen, top.indices, top.values)

    def _draw(self, logits: torch.Tensor, token_ids: torch.Tensor, random: RandomRows) -> None:
        device = logits.device

        def on_device(values: npt.NDArray[Any]) -> torch.Tensor:
            return torch.from_numpy(values).to(device, non_blocking=True)

        rows = on_device(random.rows)
        scaled = logits[rows]
        # Only differences count; without the maximum nothing overflows, however small the divisor.
        scaled = scaled - scaled.amax(dim=-1, keepdim=True)
        scaled = scaled / on_device(random.temperature).unsqueeze(1)
        if random.has_cuts:
            scaled = self.top_k_top_p(scaled, on_device(random.top_k), on_device(random.top_p))
        # Inverse transform: one number per row decides, so no generator state is needed.
        cumulative = scaled.softmax(dim=-1).cumsum(dim=-1)
        target = on_device(random.uniform).unsqueeze(1) * cumulative[:, -1:]
        drawn = torch.searchsorted(cumulative, target, right=True).squeeze(1)
        token_ids[rows] = drawn.clamp_(max=logits.shape[1] - 1)
