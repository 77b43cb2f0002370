"""Greedy answers of requests that change their logits, from the exact decoder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dougong_conformance.kit.oracle import tokens as oracle
from dougong_conformance.zoo.decoder import Decoder
from dougong_conformance.zoo.models import VOCAB_SIZE


@dataclass(frozen=True, slots=True)
class Edits:
    """What a request changes, by the names of ``SamplingParams``.

    Attributes:
        fields: As the request gives them.
    """

    fields: Mapping[str, Any]

    def apply(
        self, logits: torch.Tensor, prompt: Sequence[int], output: Sequence[int]
    ) -> torch.Tensor:
        """float64 ``[vocab_size]`` after penalties, bias, allowed and forbidden tokens."""
        fields = self.fields
        held, counts = _counts(prompt), _counts(output)
        factors = [
            torch.tensor([fields.get(name, usual)], dtype=torch.float64)
            for name, usual in (
                ("repetition_penalty", 1.0),
                ("frequency_penalty", 0.0),
                ("presence_penalty", 0.0),
            )
        ]
        changed = oracle.penalties(logits[None], held[None] > 0, counts[None], *factors).value[0]
        for token, bias in fields.get("logit_bias", ()):
            changed[token] += bias
        allowed = fields.get("allowed_token_ids")
        if allowed is not None:
            others = torch.ones(VOCAB_SIZE, dtype=torch.bool)
            others[list(allowed)] = False
            changed[others] = -math.inf
        for word in fields.get("bad_token_ids", ()):
            *before, last = word
            if list(output[len(output) - len(before) :]) == before:
                changed[last] = -math.inf
        return changed

    @property
    def stretch(self) -> float:
        """By how much a logit's error can grow."""
        factor = float(self.fields.get("repetition_penalty", 1.0))
        return max(factor, 1 / factor)


def sure_answer(
    decoder: Decoder, prompt: Sequence[int], edits: Edits, count: int, least_margin: float
) -> list[int]:
    """Tokens that follow greedily, as far as the first choice leads by ``least_margin``."""
    output: list[int] = []
    while len(output) < count:
        logits = decoder.logits([*prompt, *output])[-1].double()
        best = edits.apply(logits, prompt, output).topk(2)
        if float(best.values[0] - best.values[1]) < least_margin * edits.stretch:
            break
        output.append(int(best.indices[0]))
    return output


def _counts(held: Sequence[int]) -> torch.Tensor:
    return torch.bincount(torch.tensor(list(held), dtype=torch.int64), minlength=VOCAB_SIZE)
