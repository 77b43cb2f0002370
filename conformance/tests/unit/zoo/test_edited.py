from __future__ import annotations

import math

import torch

from dougong_conformance.zoo.decoder import Decoder
from dougong_conformance.zoo.edited import Edits, sure_answer
from dougong_conformance.zoo.models import MODELS, VOCAB_SIZE
from dougong_conformance.zoo.vectors import vectors_of


def logits() -> torch.Tensor:
    return torch.linspace(-3, 3, VOCAB_SIZE, dtype=torch.float64)


def test_penalties_come_before_biases_and_lists_after_them() -> None:
    fields = {
        "repetition_penalty": 2.0,
        "frequency_penalty": 0.5,
        "presence_penalty": 0.25,
        "logit_bias": [[90, 1.0]],
        "allowed_token_ids": [5, 90],
    }
    found = Edits(fields).apply(logits(), [90, 4], [90, 90])
    assert float(found[90]) == float(logits()[90]) / 2 - 2 * 0.5 - 0.25 + 1.0
    assert float(found[5]) == float(logits()[5])
    assert set(torch.isfinite(found).nonzero().flatten().tolist()) == {5, 90}


def test_what_is_forbidden_hangs_on_how_the_output_ends() -> None:
    edits = Edits({"bad_token_ids": [[7], [8, 9]]})
    assert float(edits.apply(logits(), [8], [])[7]) == -math.inf
    assert math.isfinite(float(edits.apply(logits(), [8], [])[9]))
    assert float(edits.apply(logits(), [1], [3, 8])[9]) == -math.inf


def test_without_edits_the_answer_is_the_stored_one_as_far_as_it_is_sure() -> None:
    vector = vectors_of("grouped")[0]
    decoder = Decoder(MODELS["grouped"])
    assert sure_answer(decoder, vector.prompt, Edits({}), 10, 0.0) == vector.tokens
    assert sure_answer(decoder, vector.prompt, Edits({}), 10, 1e9) == []
