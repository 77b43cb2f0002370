"""Penalties on tokens that a sequence holds already."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from dougong.ops.custom_op import CustomOp
from dougong.ops.example_values import seeded


class Penalties(CustomOp):
    """Make tokens less likely that were seen before.

    First **repetition** (Keskar et al. 2019, arXiv:1909.05858, as `transformers` applies it): the
    logit of a token that is in the prompt or was generated is divided by ``repetition`` where it is
    above 0, else multiplied by it; however often the token occurs. Then, for generated tokens
    alone, **frequency** and **presence** (as OpenAI's API documents them):
    ``logit - count * frequency - (count > 0) * presence``.

    Call: ``(logits, in_prompt, output_counts, repetition, frequency, presence)`` → logits of the
    same shape. ``logits`` float32 ``[num_rows, vocab_size]``, may be overwritten; ``in_prompt``
    bool and ``output_counts`` int32, both of that shape: whether the row's prompt holds a token,
    and how often it was generated; the last three float32 ``[num_rows]``, ``repetition`` above 0. A
    row with 1, 0 and 0 keeps its logits to the bit; minus infinity stays what it is.
    """

    key: ClassVar[str] = "penalties"
    may_mutate: ClassVar[tuple[str, ...]] = ("logits",)

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three rows: all penalties, none, one of them a reward."""
        output_counts = (seeded(3, 16, seed=1) * 2).clamp(min=0).int()
        return cls(), (
            seeded(3, 16),
            seeded(3, 16, seed=2) > 0,
            output_counts,
            torch.tensor([1.3, 1.0, 0.8]),
            torch.tensor([0.5, 0.0, -0.25]),
            torch.tensor([0.7, 0.0, 0.0]),
        )

    def forward_native(
        self,
        logits: torch.Tensor,
        in_prompt: torch.Tensor,
        output_counts: torch.Tensor,
        repetition: torch.Tensor,
        frequency: torch.Tensor,
        presence: torch.Tensor,
    ) -> torch.Tensor:
        """Three elementwise passes; the inputs stay as they are."""
        generated = output_counts > 0
        factor = repetition.unsqueeze(1)
        repeated = torch.where(logits > 0, logits / factor, logits * factor)
        penalised = torch.where(in_prompt | generated, repeated, logits)
        penalised = penalised - output_counts * frequency.unsqueeze(1)
        return penalised - generated * presence.unsqueeze(1)
