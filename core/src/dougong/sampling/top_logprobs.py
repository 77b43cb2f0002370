"""Log-probabilities of certain tokens and of the most likely ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(slots=True)
class TopLogprobs:
    """Of some rows of logits.

    Attributes:
        logprob: float32 ``[num_rows]``, of the row's token.
        top_ids: int64 ``[num_rows, k]``, best first.
        top_logprobs: float32 ``[num_rows, k]``.
    """

    logprob: torch.Tensor
    top_ids: torch.Tensor
    top_logprobs: torch.Tensor


def top_of(logprobs: torch.Tensor, token_ids: torch.Tensor, count: int) -> TopLogprobs:
    """What is reported of log-probabilities ``[num_rows, vocab_size]``.

    Args:
        logprobs: Of every token.
        token_ids: int64 ``[num_rows]``, one per row.
        count: Most likely tokens; fewer where the vocabulary is smaller.
    """
    top = logprobs.topk(min(count, logprobs.shape[1]), dim=-1)
    chosen = logprobs.gather(1, token_ids.unsqueeze(1)).squeeze(1)
    return TopLogprobs(chosen, top.indices, top.values)


def joined(parts: list[TopLogprobs]) -> TopLogprobs:
    """Rows of one part after the other."""
    if len(parts) == 1:
        return parts[0]
    return TopLogprobs(
        torch.cat([part.logprob for part in parts]),
        torch.cat([part.top_ids for part in parts]),
        torch.cat([part.top_logprobs for part in parts]),
    )
