"""Checks of what requests change in their logits before a token is chosen, all rows at once."""

from __future__ import annotations

import math

import torch

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.kit.generate import Draw
from dougong_conformance.kit.metric import F64
from dougong_conformance.kit.oracle import tokens
from dougong_conformance.kit.oracle.draw import draw, uniform
from dougong_conformance.subject import Subject
from dougong_conformance.suite.op_under_test import for_device
from dougong_conformance.suite.sampled_steps import drawn_tokens, edited

_VOCAB_SIZE = 211
_EDGE = 1e-5  # of a logarithm: nearer to the edge of min_p nobody can say who is inside


@check("sampling.min_p")
def min_p(subject: Subject, judge: Judge) -> None:
    """What is less likely than its share of the likeliest is cut, after the temperature and before
    the other cuts."""
    count = 192
    logits = Draw("sampling.min_p").normal(count, _VOCAB_SIZE, scale=2.0)
    of, at = [5 * one + 2 for one in range(count)], list(range(count))
    temperature = [0.4 + 0.01 * one for one in range(count)]
    shares = [0.0, 0.02, 0.1, 0.5, 1.0, 0.3] * (count // 6)
    top_k, top_p = [_VOCAB_SIZE, 9, 40] * (count // 3), [1.0, 1.0, 0.8, 0.95] * (count // 4)
    drawn = drawn_tokens(
        subject,
        judge,
        logits,
        seeds=of,
        positions=at,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=shares,
    )
    scaled = logits.double() / torch.tensor(temperature, dtype=F64).unsqueeze(1)
    lowest = scaled.amax(dim=1, keepdim=True) + torch.tensor(shares, dtype=F64).log().unsqueeze(1)
    is_inside = scaled >= lowest
    left = scaled.masked_fill(~is_inside, -math.inf)
    keeps, is_edge = tokens.kept(left, torch.tensor(top_k), torch.tensor(top_p))
    right, is_near = draw(logits, temperature, keeps & is_inside, uniform(of, at))
    is_first = scaled == scaled.amax(dim=1, keepdim=True)
    is_edge |= ((scaled - lowest).abs() < _EDGE) & ~is_first
    is_judged = ~is_near & ~is_edge.any(dim=1)
    judge.require(
        int(is_judged.sum()) > count // 2, "too few rows are far enough from an edge to judge"
    )
    wrong = (drawn != right) & is_judged
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        judge.fail(
            f"{int(wrong.sum())} of {int(is_judged.sum())} rows drew another token; row {row} with "
            f"min_p={shares[row]:g} drew {int(drawn[row])}, expected {int(right[row])}"
        )


@check("sampling.penalised_rows")
def penalised_rows(subject: Subject, judge: Judge) -> None:
    """What rows hold is counted as often as it is there, for some rows of a step and for all."""
    draw_ = Draw("sampling.penalised_rows")
    for rows in ([0, 1, 2, 3, 4], [1, 4], [3]):
        logits = draw_.normal(5, 97, scale=3.0)
        prompts = [draw_.integers(0, 97, length).tolist() for length in (1, 30, 7, 90, 2)]
        outputs = [draw_.integers(0, 40, length).tolist() for length in (60, 0, 3, 25, 1)]
        outputs[0][:3] = [96, 96, 0]
        penalties = {
            "repetition": [1.0, 1.3, 0.7, 2.0, 1.1],
            "frequency": [0.4, 0.0, -0.6, 1.5, 0.25],
            "presence": [0.0, 0.9, 0.3, -0.5, 0.125],
        }
        asked = {name: [values[row] for row in rows] for name, values in penalties.items()}
        found = edited(
            subject,
            judge,
            logits,
            penalised={
                "rows": rows,
                **asked,
                "prompt": [prompts[row] for row in rows],
                "output": [outputs[row] for row in rows],
            },
        )
        right = tokens.penalties(
            logits[rows],
            torch.stack([_counts(prompts[row], 97) > 0 for row in rows]),
            torch.stack([_counts(outputs[row], 97) for row in rows]),
            *(torch.tensor(values) for values in asked.values()),
        )
        judge.close(found[rows], for_device(right, subject), name="penalties of rows")
        others = [row for row in range(5) if row not in rows]
        judge.exact(found[others], logits[others], "logits of rows without penalties")


@check("sampling.logit_bias")
def logit_bias(subject: Subject, judge: Judge) -> None:
    """A bias is added to its own logit, and no other changes a bit."""
    logits = Draw("sampling.logit_bias").normal(6, 97, scale=3.0)
    biased = [[1, 5, 2.5], [1, 96, -100.0], [4, 0, 0.125], [4, 5, 100.0], [5, 5, -1e-3]]
    right = logits.clone()
    for row, token, bias in biased:
        right[int(row), int(token)] += torch.tensor(bias)
    found = edited(subject, judge, logits, biased=biased)
    judge.exact(found, right, "logits with a bias")


@check("sampling.allowed")
def allowed(subject: Subject, judge: Judge) -> None:
    """Rows with a list of tokens keep those alone, as they are; other rows keep all. What is
    forbidden stays so, though it is allowed or preferred."""
    logits = Draw("sampling.allowed").normal(7, 97, scale=3.0)
    lists: dict[int, list[int]] = {0: [3], 2: [0, 96, 5, 40], 3: [7, 5], 6: list(range(0, 97, 2))}
    right = logits.clone()
    for row, ids in lists.items():
        right[row] = -math.inf
        right[row, ids] = logits[row, ids]
    found = edited(subject, judge, logits, allowed=[[row, ids] for row, ids in lists.items()])
    judge.exact(found, right, "logits where some tokens are allowed")
    together = edited(
        subject,
        judge,
        logits,
        biased=[[2, 5, 50.0], [2, 6, 90.0], [4, 6, 90.0]],
        allowed=[[row, ids] for row, ids in lists.items()],
        suppressed=[[2, [96]], [3, [5]], [4, [6]]],
    )
    right[2, 5] += 50.0
    for row, token in ((2, 96), (3, 5), (4, 6)):
        right[row, token] = -math.inf
    judge.exact(together, right, "logits with a bias, allowed and forbidden tokens")


@check("sampling.structured")
def structured(subject: Subject, judge: Judge) -> None:
    """Rows keep what the bits of their masks allow, as it is, and other rows keep all."""
    claim_masks(subject, judge)
    draw_ = Draw("sampling.structured")
    for vocab_size, rows in ((97, [4, 0, 3]), (64, [0, 1, 2, 3, 4]), (211, [3, 1, 4, 0, 2])):
        logits = draw_.normal(5, vocab_size, scale=3.0)
        is_allowed = draw_.uniform(len(rows), vocab_size) < 0.3
        is_allowed[0] = False
        is_allowed[0, [0, 31, 32, vocab_size - 1]] = True
        is_allowed[1] = True
        is_allowed[2, [1, 8, 63]] = True
        bitmask = tokens.packed(is_allowed)
        found = edited(subject, judge, logits, masked={"rows": rows, "bitmask": bitmask})
        right = logits.clone()
        right[rows] = logits[rows].masked_fill(~is_allowed, -math.inf)
        judge.exact(found, right, f"logits under masks of {vocab_size} tokens")


def claim_masks(subject: Subject, judge: Judge) -> None:
    """End a case where the platform's worker takes no masks.

    Raises:
        NotClaimed: It takes none.
    """
    if not subject.facts.takes_grammar_masks:
        judge.not_claimed("the worker takes no grammar masks (Worker.takes_grammar_masks)")


def _counts(held: list[int], vocab_size: int) -> torch.Tensor:
    return torch.bincount(torch.tensor(held, dtype=torch.int64), minlength=vocab_size)
