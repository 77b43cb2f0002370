"""Checks of tokens as the sampler chooses them on the device: seeds, distribution, steps."""

from __future__ import annotations

from dataclasses import replace

import torch

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.kit.generate import Draw
from dougong_conformance.kit.metric import F64
from dougong_conformance.kit.oracle import tokens
from dougong_conformance.kit.oracle.draw import draw, uniform
from dougong_conformance.subject import Subject
from dougong_conformance.suite.sampled_steps import drawn_tokens, random_rows, sampled

_BINS = 16
_DRAWS = 8000
_MOST_DISTANCE = 0.045  # more than twice what a right sampler shows


@check("sampling.seeds")
def seeds(subject: Subject, judge: Judge) -> None:
    """A token depends on its row's seed and position, and on nothing else in the batch."""
    logits = Draw("sampling.seeds").normal(1, 512).expand(64, -1).contiguous()
    base = list(range(64))
    first, again, other, moved = (
        drawn_tokens(subject, judge, logits, seeds=of, positions=at)
        for of, at in (
            (base, [5] * 64),
            (base, [5] * 64),
            ([one + 1000 for one in base], [5] * 64),
            (base, [6] * 64),
        )
    )
    judge.require(torch.equal(first, again), "the same seeds and positions drew other tokens")
    for what, drawn in (("seeds", other), ("positions", moved)):
        judge.require(not torch.equal(first, drawn), f"other {what} drew the same tokens")
    judge.require(
        len(set(first.tolist())) > 16,
        f"64 rows of other seeds drew {len(set(first.tolist()))} tokens",
    )
    few = drawn_tokens(subject, judge, logits[:3], seeds=base[:3], positions=[5] * 3)
    judge.exact(few, first[:3], "tokens of the first rows, drawn in a smaller batch,")


@check("sampling.distribution")
def distribution(subject: Subject, judge: Judge) -> None:
    """Tokens are drawn as often as their probabilities say, at several temperatures."""
    logits = Draw("sampling.distribution").normal(1, _BINS)
    rows = logits.expand(_DRAWS, -1).contiguous()
    for temperature in (1.0, 0.5, 2.0):
        drawn = drawn_tokens(
            subject,
            judge,
            rows,
            seeds=list(range(_DRAWS)),
            positions=[7] * _DRAWS,
            temperature=temperature,
        )
        found = torch.bincount(drawn, minlength=_BINS).to(F64) / _DRAWS
        right = (logits[0].to(F64) / temperature).softmax(dim=-1)
        judge.at_most(
            f"total variation distance at temperature {temperature:g}",
            float((found - right).abs().sum() / 2),
            _MOST_DISTANCE,
        )


@check("sampling.draws")
def draws(subject: Subject, judge: Judge) -> None:
    """Each row draws the token that inverse transform gives, in the order of ids."""
    logits = Draw("sampling.draws").normal(192, 211, scale=2.0)
    of, at = [3 * one + 11 for one in range(192)], list(range(192))
    temperature = [0.3 + 0.01 * one for one in range(192)]
    top_k, top_p = [211, 5, 50, 1] * 48, [1.0, 0.9, 0.5, 1.0, 0.95, 0.3] * 32
    drawn = drawn_tokens(
        subject,
        judge,
        logits,
        seeds=of,
        positions=at,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
    )
    scaled = logits.double() / torch.tensor(temperature, dtype=F64).unsqueeze(1)
    keeps, is_edge = tokens.kept(scaled, torch.tensor(top_k), torch.tensor(top_p))
    right, is_near = draw(logits, temperature, keeps, uniform(of, at))
    is_judged = ~is_near & ~is_edge.any(dim=1)
    wrong = (drawn != right) & is_judged
    judge.require(bool(is_judged.sum() > 96), "too few rows are far enough from an edge to judge")
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        judge.fail(
            f"{int(wrong.sum())} of {int(is_judged.sum())} rows drew another token; row {row} drew "
            f"{int(drawn[row])}, expected {int(right[row])}"
        )


@check("sampling.mixed_rows")
def mixed_rows(subject: Subject, judge: Judge) -> None:
    """Greedy rows and drawing rows of one step stay apart."""
    logits = Draw("sampling.mixed_rows").normal(9, 97, scale=2.0)
    rows = [7, 1, 4]
    found = sampled(subject, judge, [logits], [random_rows(rows, [1, 2, 3], [0, 0, 0], 97)])[0]
    greedy = tokens.greedy(logits)
    others = [row for row in range(9) if row not in rows]
    judge.exact(found["token_ids"][others], greedy[others], "tokens of greedy rows")
    right, is_near = draw(
        logits[rows],
        [1.0] * 3,
        torch.ones(3, 97, dtype=torch.bool),
        uniform([1, 2, 3], [0, 0, 0]),
    )
    drawn = found["token_ids"][rows]
    judge.require(
        bool(((drawn == right) | is_near).all()),
        f"rows {rows} drew {drawn.tolist()}, expected {right.tolist()}",
    )


@check("sampling.each_step")
def each_step(subject: Subject, judge: Judge) -> None:
    """Every step gives its own tokens, though shapes repeat."""
    draw_ = Draw("sampling.each_step")
    steps = [draw_.normal(5, 97) for _ in range(4)]
    for logits, found in zip(steps, sampled(subject, judge, steps), strict=True):
        judge.exact(found["token_ids"], tokens.greedy(logits), "tokens of one of four greedy steps")


@check("sampling.reported_logprobs")
def reported_logprobs(subject: Subject, judge: Judge) -> None:
    """Reported logarithms are those before temperature and cuts, best first."""
    logits = Draw("sampling.reported_logprobs").normal(6, 97, scale=2.0)
    random = random_rows(list(range(6)), [1] * 6, list(range(6)), 97)
    random |= {"temperature": [0.5] * 6, "top_k": [3] * 6, "has_cuts": [True]}
    (found,) = sampled(subject, judge, [logits], [random], num_logprobs=4)
    whole = tokens.logprobs(logits)
    ids = torch.cat((found["token_ids"].unsqueeze(1), found["top_ids"]), dim=1)
    given = torch.cat((found["logprob"].unsqueeze(1), found["top_logprobs"]), dim=1)
    picked = replace(
        whole,
        value=whole.value.gather(1, ids),
        condition=whole.condition.gather(1, ids),
        rounded=whole.rounded.gather(1, ids),
    )
    judge.close(given, picked, name="reported logprobs")
    best = whole.value.sort(dim=-1, descending=True, stable=True).indices[:, :4]
    judge.exact(found["top_ids"], best, "the most likely tokens")


@check("sampling.suppressed")
def suppressed(subject: Subject, judge: Judge) -> None:
    """Tokens that are ruled out for a row are not chosen there, and are elsewhere."""
    logits = Draw("sampling.suppressed").normal(3, 97)
    logits[:, 5] = 9.0
    logits[:, 40] = 8.0
    (found,) = sampled(subject, judge, [logits], suppressed=[[1, [5]], [2, [5, 40]]])
    ruled = logits.clone()
    ruled[1, 5] = ruled[2, 5] = ruled[2, 40] = -torch.inf
    judge.exact(found["token_ids"], tokens.greedy(ruled), "tokens where some are ruled out")
