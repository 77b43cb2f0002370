"""Cuts of a distribution: which tokens stay, to the token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dougong_conformance.judging import Judge
from dougong_conformance.kit.oracle import tokens
from dougong_conformance.subject import Subject
from dougong_conformance.suite.op_under_test import OpUnderTest


class CutsUnderTest:
    """The op ``top_k_top_p``, by every implementation.

    Args:
        subject: The plugin.
        judge: Of the case.
        dtype: Compute dtype, for conditions.
    """

    def __init__(self, subject: Subject, judge: Judge, dtype: str) -> None:
        self.judge = judge
        self.op = OpUnderTest(subject, judge, "top_k_top_p", dtype)

    def arguments(
        self, logits: torch.Tensor, top_k: Sequence[int], top_p: Sequence[float]
    ) -> list[Any]:
        """Of one call."""
        return [logits, torch.tensor(top_k), torch.tensor(top_p)]

    def check(self, logits: torch.Tensor, top_k: Sequence[int], top_p: Sequence[float]) -> None:
        """What is kept has its bits, the rest is minus infinity; too near to say is not judged."""
        arguments = self.arguments(logits, top_k, top_p)
        keeps, is_near = tokens.kept(*arguments)
        for way in self.op.ways():
            (call,) = self.op.run(way, [arguments])
            (found,) = call["outputs"]
            self.judge.require(
                found.shape == logits.shape and found.dtype is torch.float32,
                f"top_k_top_p by {way} gave {found.dtype} {list(found.shape)}",
            )
            is_kept = found > -torch.inf
            wrong = (is_kept != keeps) & ~is_near
            if bool(wrong.any()):
                row = int(wrong.any(dim=1).nonzero()[0])
                self.judge.fail(
                    f"top_k_top_p by {way}: of row {row} with k={top_k[row]} and p={top_p[row]:g} "
                    f"it keeps {int(is_kept[row].sum())} tokens; {int(keeps[row].sum())} are right"
                )
            self.judge.exact(found[is_kept], logits[is_kept], f"kept logits by {way}")
