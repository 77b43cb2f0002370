"""Three results whose verdict is known: a judge that errs on one of them is not believed."""

from __future__ import annotations

import torch

from dougong_conformance.judging import Judge
from dougong_conformance.kit.metric import Expected
from dougong_conformance.outcomes import CheckFailed


def problems() -> list[str]:
    """What the judge gets wrong now; empty: nothing."""
    value = torch.linspace(-3.0, 3.0, 64, dtype=torch.float64).reshape(8, 8) + 0.01
    expected = Expected(
        value=value, condition=value.abs(), rounded=value.abs(), n=8, dtype=torch.float32
    )
    good = value.to(torch.float32)
    wrong = good.clone()
    wrong[5, 3] *= 1.001
    spoiled = good.clone()
    spoiled[7, 7] = float("nan")
    found = []
    if not _passes(good, expected):
        found.append("a canary that is right was failed")
    if _passes(wrong, expected):
        found.append("a canary with one element off by a thousandth passed")
    if _passes(spoiled, expected):
        found.append("a canary with a NaN passed")
    return found


def _passes(actual: torch.Tensor, expected: Expected) -> bool:
    try:
        Judge().close(actual, expected, name="canary")
    except CheckFailed:
        return False
    return True
