"""Checks of the pieces of sampling: each op alone, by every implementation."""

from __future__ import annotations

from typing import Any

import torch

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.kit.generate import Draw
from dougong_conformance.subject import Subject
from dougong_conformance.suite.op_under_test import OpUnderTest
from dougong_conformance.suite.token_cuts import CutsUnderTest

_INF = float("inf")


@check("sampling.greedy_ties", per_dtype=True)
def greedy_ties(subject: Subject, judge: Judge, dtype: str) -> None:
    """Of equal logits the lowest id wins, however far apart they are."""
    op = OpUnderTest(subject, judge, "greedy_sample", dtype, id="sampling.greedy_ties")
    small = torch.tensor(
        [[1.0, 3.0, 3.0, 0.0], [2.0] * 4, [-_INF, 0.0, -1.0, 0.0], [-5.0, -5.0, -9.0, -5.0]]
    )
    far = Draw("sampling.greedy_ties").normal(3, 4099)
    far[0, [17, 4098]] = 9.0
    far[1, [0, 2048]] = 9.0
    far[2, [1023, 1024]] = 9.0
    op.check_calls([[small], [far], [small[:1]], *op_calls(op, (1, 2, 3, 7, 8))])


@check("sampling.top_k", per_dtype=True)
def top_k(subject: Subject, judge: Judge, dtype: str) -> None:
    """Exactly ``k`` tokens stay, and those that are equal to the last of them."""
    cuts = CutsUnderTest(subject, judge, dtype)
    draw = Draw("sampling.top_k")
    distinct = torch.stack([draw.permutation(97) for _ in range(5)]).float() / 8
    cuts.check(distinct, [1, 2, 96, 97, 40], [1.0] * 5)
    ties = distinct.clone()
    ties[:, :6] = 20.0
    cuts.check(ties, [1, 3, 6, 7, 97], [1.0] * 5)


@check("sampling.top_p", per_dtype=True)
def top_p(subject: Subject, judge: Judge, dtype: str) -> None:
    """The smallest set that reaches ``p`` stays; the token that crosses it is in."""
    cuts = CutsUnderTest(subject, judge, dtype)
    halves = torch.tensor([[0.5, 0.25, 0.125, 0.0625, 0.0625]]).log()
    limits = [0.4, 0.51, 0.74, 0.76, 1.0, 0.1]
    order = torch.tensor([3, 0, 4, 1, 2])
    cuts.check(halves.expand(6, -1)[:, order].contiguous(), [5] * 6, limits)
    drawn = Draw("sampling.top_p").normal(8, 211, scale=3.0)
    cuts.check(drawn, [211] * 8, [0.05, 0.3, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999])
    cuts.check(drawn, [1, 3, 20, 211, 50, 7, 211, 2], [0.5, 0.9, 0.8, 0.9, 0.2, 1.0, 0.95, 0.01])


@check("sampling.no_cut", per_dtype=True)
def no_cut(subject: Subject, judge: Judge, dtype: str) -> None:
    """Rows that ask for no cut keep every logit, beside rows that ask for one."""
    cuts = CutsUnderTest(subject, judge, dtype)
    drawn = Draw("sampling.no_cut").normal(4, 1009, scale=6.0)
    drawn[2] = 0.0
    cuts.check(drawn, [1009, 5, 1009, 1009], [1.0, 1.0, 1.0, 0.5])
    for way in cuts.op.ways():
        (call,) = cuts.op.run(way, [cuts.arguments(drawn, [1009] * 4, [1.0] * 4)])
        judge.exact(call["outputs"][0], drawn, f"logits of rows without a cut by {way}")


@check("sampling.logprobs", per_dtype=True)
def logprobs(subject: Subject, judge: Judge, dtype: str) -> None:
    """Logarithms of the probabilities of the logits as they are, in float32."""
    both: tuple[dict[str, Any], ...] = ({"vocab_size": 97}, {"vocab_size": 4099, "scale": 10.0})
    for index, sizes in enumerate(both):
        op = OpUnderTest(
            subject, judge, "logprobs", dtype, id="sampling.logprobs", index=index, **sizes
        )
        calls = op_calls(op, (1, 2, 3, 7, 8, 0))
        calls[0][0][:, 5] = -_INF
        op.check_calls(calls)


@check("sampling.penalties", per_dtype=True)
def penalties(subject: Subject, judge: Judge, dtype: str) -> None:
    """Repetition once per token, frequency by count, presence once; none leaves the bits alone."""
    op = OpUnderTest(subject, judge, "penalties", dtype, id="sampling.penalties")
    calls = op_calls(op, (1, 2, 3, 7, 8, 0))
    op.check_calls(calls)
    for way in op.ways():
        (call,) = op.run(way, calls[3:4])
        judge.exact(
            call["outputs"][0][0], calls[3][0][0], f"logits of a row without penalties by {way}"
        )


def op_calls(op: OpUnderTest, counts: tuple[int, ...]) -> list[list[torch.Tensor]]:
    """Arguments of calls with so many rows."""
    return [op.arguments(count) for count in counts]
