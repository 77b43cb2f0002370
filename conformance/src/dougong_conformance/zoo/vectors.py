"""Stored prompts with the greedy answers that every right implementation gives."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Vector:
    """One prompt and its answer.

    Attributes:
        model: Of the zoo.
        prompt: Token ids.
        tokens: That follow greedily.
        margin: Least difference between first and second choice, in logits.
        noise: Most that legal roundings move a log-probability, in the coarsest dtype.
    """

    model: str
    prompt: list[int]
    tokens: list[int]
    margin: float
    noise: float

    def as_row(self) -> dict[str, Any]:
        """As stored."""
        return {**asdict(self), "margin": round(self.margin, 4), "noise": round(self.noise, 4)}


def path() -> Path:
    """The file."""
    return Path(__file__).with_name("vectors.json")


@cache
def all_vectors() -> tuple[Vector, ...]:
    """Every one, model by model."""
    return tuple(Vector(**row) for row in json.loads(path().read_text(encoding="utf-8")))


def vectors_of(model: str) -> tuple[Vector, ...]:
    """Those of one model."""
    return tuple(one for one in all_vectors() if one.model == model)
