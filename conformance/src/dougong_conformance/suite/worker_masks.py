"""The worker obeys masks: those of grammars, or any other."""

from __future__ import annotations

from typing import Any

import torch

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.kit.generate import Draw
from dougong_conformance.kit.oracle.tokens import packed
from dougong_conformance.subject import Subject
from dougong_conformance.suite.engine import legal_noise_of
from dougong_conformance.suite.sampling_edits import claim_masks
from dougong_conformance.suite.worker import MODEL, first_dtype
from dougong_conformance.zoo.decoder import Decoder
from dougong_conformance.zoo.models import MODELS, VOCAB_SIZE
from dougong_conformance.zoo.vectors import vectors_of

_MASKED: tuple[list[int], ...] = ([2, 0], [1], [], [2, 1, 0], [0])
"""Requests with a mask in each step, not in the order of the batch."""
_MARGIN = 6.0  # times the legal noise, as that of stored answers
_LEAST_SURE = 8


@check("worker.grammar_masks")
def grammar_masks(subject: Subject, judge: Judge) -> None:
    claim_masks(subject, judge)
    dtype = first_dtype(subject.facts)
    prompts = [one.prompt for one in vectors_of(MODEL)]
    draw = Draw("worker.grammar_masks")
    masks = [draw.uniform(len(requests), VOCAB_SIZE) < 0.15 for requests in _MASKED]
    steps: list[dict[str, Any]] = [
        {"requests": requests, "bitmask": packed(mask)}
        for requests, mask in zip(_MASKED, masks, strict=True)
    ]
    found = subject.call("worker.masked", model=MODEL, dtype=dtype, prompts=prompts, steps=steps)
    decoder, num_sure = Decoder(MODELS[MODEL]), 0
    for index, prompt in enumerate(prompts):
        least = _MARGIN * legal_noise_of(MODEL, prompt, dtype)
        tokens = list(prompt)
        for number, (requests, mask) in enumerate(zip(_MASKED, masks, strict=True)):
            given = found[number][index]
            logits = decoder.logits(tokens)[-1]
            if index in requests:
                logits = logits.masked_fill(~mask[requests.index(index)], -torch.inf)
            best = logits.topk(2)
            is_sure = float(best.values[0] - best.values[1]) >= least
            judge.require(
                not is_sure or given == int(best.indices[0]),
                f"step {number}, request {index}, {'a' if index in requests else 'no'} mask: it "
                f"gets token {given}; expected {int(best.indices[0])}",
            )
            judge.require(
                bool(logits[given] > -torch.inf),
                f"step {number}: request {index} gets token {given}, which its mask forbids",
            )
            num_sure += is_sure
            tokens.append(given)
    judge.require(num_sure >= _LEAST_SURE, f"only {num_sure} tokens are sure in {dtype}")
