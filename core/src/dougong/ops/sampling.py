"""Pieces of sampling a vendor may own; each works on float32 logits ``[num_rows, vocab_size]``."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from dougong.ops.custom_op import CustomOp
from dougong.ops.example_values import seeded


class GreedySample(CustomOp):
    """The most likely token; equal ones go to the lowest id.

    Call: ``(logits)`` → int64 ``[num_rows]``.
    """

    key: ClassVar[str] = "greedy_sample"

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three rows; one has no preference."""
        logits = seeded(3, 16)
        logits[1] = 0
        return cls(), (logits,)

    def forward_native(self, logits: torch.Tensor) -> torch.Tensor:
        """``argmax``, which takes the first of equal maxima."""
        return logits.argmax(dim=-1)


class TopKTopP(CustomOp):
    """Cut the distribution to the ``k`` most likely tokens, then to the smallest set reaching
    ``p``.

    Call: ``(logits, top_k, top_p)``; ``top_k`` int64 and ``top_p`` float32, both ``[num_rows]``;
        ``k``
    of ``vocab_size`` and ``p`` of 1 cut nothing → logits with what was cut at ``-inf``. The token
    that crosses ``p`` stays; equal logits at the edge of ``k`` stay together.
    """

    key: ClassVar[str] = "top_k_top_p"

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three rows: both cuts, one of them, none."""
        top_k, top_p = torch.tensor([4, 16, 16]), torch.tensor([0.9, 0.5, 1.0])
        return cls(), (seeded(3, 16), top_k, top_p)

    def forward_native(
        self, logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor
    ) -> torch.Tensor:
        """Sort once, find both cuts, apply them as one threshold per row."""
        ordered, _ = logits.sort(dim=-1, descending=True)
        kth = ordered.gather(1, (top_k - 1).unsqueeze(1))
        kept = ordered.masked_fill(ordered < kth, -torch.inf)
        probs = kept.softmax(dim=-1)
        before = probs.cumsum(dim=-1) - probs
        # A sum that rounding brings to 1 too early must not cut a row that asked for no cut. The
        # first token always stays.
        limit = torch.where(top_p < 1, top_p, torch.inf).unsqueeze(1)
        num_kept = (before < limit).sum(dim=-1, keepdim=True).clamp_(min=1)
        threshold = torch.maximum(ordered.gather(1, num_kept - 1), kth)
        return logits.masked_fill(logits < threshold, -torch.inf)


class Logprobs(CustomOp):
    """Log-probabilities, natural logarithm.

    Call: ``(logits)`` → float32, same shape.
    """

    key: ClassVar[str] = "logprobs"

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three rows."""
        return cls(), (seeded(3, 16),)

    def forward_native(self, logits: torch.Tensor) -> torch.Tensor:
        """``log_softmax`` in float32."""
        return logits.log_softmax(dim=-1, dtype=torch.float32)
