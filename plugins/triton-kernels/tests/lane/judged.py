"""Results against the suite's float64 oracles, under the suite's own error law."""

from __future__ import annotations

import torch
from dougong_conformance.kit.limits import law
from dougong_conformance.kit.metric import Expected, normalised_error, rounding_bias, summarise

ENOUGH_FOR_A_BIAS = 2000


def largest_error(actual: torch.Tensor, expected: Expected) -> float:
    """Normalised, against the oracle's answer that fits best; at most `limit` is right."""
    assert actual.shape == expected.value.shape
    assert actual.dtype is expected.dtype
    choices = (expected, *expected.alternatives)
    return min(summarise(normalised_error(actual, one)).max for one in choices)


def limit() -> float:
    """Of the law."""
    return law().max_error


def is_right(actual: torch.Tensor, expected: Expected) -> bool:
    """Within the law, and not rounded to one side where there are numbers enough to tell."""
    if largest_error(actual, expected) > limit():
        return False
    if expected.dtype is torch.float32 or actual.numel() < ENOUGH_FOR_A_BIAS:
        return True
    return abs(rounding_bias(actual, expected)) <= law().bias
