"""Make ``vectors.json``: prompts whose greedy answers no legal rounding can change.

Run it as ``python -m dougong_conformance.zoo.generate`` after a model was added or changed.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

from dougong_conformance.kit.generate import generator
from dougong_conformance.zoo.decoder import Decoder, greedy, legal_noise
from dougong_conformance.zoo.models import MODELS, VOCAB_SIZE, ZooModel
from dougong_conformance.zoo.vectors import Vector, path

PER_MODEL = 3
_NUM_TOKENS = 10
_MARGIN = 6.0  # times the noise in the coarsest dtype
_MOST_TRIES = 20000
_LENGTHS = (1, 5, 9, 17, 23)
_DIFFERENT = 3  # tokens of an answer that differ, at least


def vectors_of(model: ZooModel) -> list[Vector]:
    """Kept ones, found by trying."""
    decoder, found, least = Decoder(model), list[Vector](), 0.0
    for attempt in range(_MOST_TRIES):
        draw = generator(f"zoo.{model.name}", attempt)
        length = _LENGTHS[attempt % len(_LENGTHS)]
        prompt = [int(one) for one in draw.integers(2, VOCAB_SIZE, size=length)]
        tokens, margin = greedy(decoder, prompt, _NUM_TOKENS, least)
        if margin < least or len(set(tokens)) < _DIFFERENT:
            continue
        noise = max(
            legal_noise(model, prompt + tokens, dtype) for dtype in (torch.bfloat16, torch.float16)
        )
        least = 0.6 * _MARGIN * noise  # most prompts need no closer look
        if margin >= _MARGIN * noise:
            found.append(Vector(model.name, prompt, tokens, margin, noise))
        if len(found) == PER_MODEL:
            return found
    raise RuntimeError(f"{model.name}: only {len(found)} prompts in {_MOST_TRIES} have a margin")


def main(target: Path | None = None) -> None:
    """Write all vectors."""
    rows = [one.as_row() for model in MODELS.values() for one in vectors_of(model)]
    lines = ",\n".join(json.dumps(row) for row in rows)
    (target or path()).write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
