"""The one error law: how far a result may lie from the oracle's, and how that is measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from dougong_conformance.kit.limits import law

if TYPE_CHECKING:
    from dougong_conformance.judging import Judge

F64 = torch.float64
HALF_ULP = {
    torch.float64: 2.0**-53,
    torch.float32: 2.0**-24,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
}
"""Half an ulp of 1: the largest relative error of one rounding."""

SMALLEST = {torch.float32: 2.0**-149, torch.float16: 2.0**-24, torch.bfloat16: 2.0**-133}
SMALLEST_NORMAL = {torch.float32: 2.0**-126, torch.float16: 2.0**-14, torch.bfloat16: 2.0**-126}
_ACCUMULATION = 2.0**-24
_TF32_ACCUMULATION = 2.0**-10  # products of two 10-bit mantissas, each rounded


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """The oracle's answer.

    Attributes:
        value: float64: exact for the inputs as they were given.
        condition: float64: the same formula on absolute values; scales the accumulation's error.
        rounded: float64: size of the intermediate results that may be rounded to the storage dtype.
        n: Length of the reduction.
        dtype: That the result must have.
        alternatives: Other answers that are as right; one of them has to hold as a whole.
        tiny: Smallest number that the device keeps; ``None``: the dtype's smallest subnormal.
        accumulation: Relative error of one step of a sum.
    """

    value: torch.Tensor
    condition: torch.Tensor
    rounded: torch.Tensor
    n: int
    dtype: torch.dtype
    alternatives: tuple[Expected, ...] = ()
    tiny: float | None = None
    accumulation: float = _ACCUMULATION

    def flushing(self) -> Expected:
        """For a device that says it flushes subnormals."""
        return replace(
            self,
            tiny=SMALLEST_NORMAL[self.dtype],
            alternatives=tuple(one.flushing() for one in self.alternatives),
        )

    def with_tf32(self) -> Expected:
        """For a device that says it multiplies float32 with 10-bit mantissas."""
        return replace(self, accumulation=_TF32_ACCUMULATION)


@dataclass(frozen=True, slots=True)
class ErrorSummary:
    """How far a result lies from what was expected.

    Attributes:
        max: Largest normalised error.
        rms: Root mean square of it.
        at: Index of the largest.
    """

    max: float
    rms: float
    at: tuple[int, ...]


def normalised_error(actual: torch.Tensor, expected: Expected) -> torch.Tensor:
    """The law, per element; infinite where one is finite and the other is not."""
    wide, value = actual.to(F64), expected.value
    tiny = SMALLEST[expected.dtype] if expected.tiny is None else expected.tiny
    scale = (
        HALF_ULP[expected.dtype] * (value.abs() + expected.rounded)
        + math.sqrt(expected.n) * expected.accumulation * expected.condition
        + tiny
    )
    error = (wide - value).abs() / scale
    error = torch.where(torch.isfinite(value), error, 0.0)
    return torch.where(_same_pattern(wide, value), error, torch.inf)


def summarise(error: torch.Tensor) -> ErrorSummary:
    """Of a tensor of normalised errors; of none, zeros."""
    if error.numel() == 0:
        return ErrorSummary(0.0, 0.0, ())
    flat = error.flatten()
    place = int(flat.argmax())
    largest, rms = float(flat[place]), float(flat.square().mean().sqrt())
    at = []
    for size in reversed(error.shape):
        place, index = divmod(place, size)
        at.append(index)
    return ErrorSummary(largest, rms, tuple(reversed(at)))


def rounding_bias(actual: torch.Tensor, expected: Expected) -> float:
    """Mean signed error in half ulps, away from zero counted positive.

    Elements much smaller than the others are left out: they cancelled, and tell of the sum's order.
    """
    value = expected.value
    is_counted = value.abs() > 1e-3 * value.abs().mean()
    half_ulps = (actual.to(F64) - value) / (HALF_ULP[expected.dtype] * value.abs())
    signed = (half_ulps * value.sign())[is_counted]
    return float(signed.clamp(-4, 4).mean()) if signed.numel() else 0.0


def compare(
    judge: Judge, actual: torch.Tensor, expected: Expected, *, name: str = "", bias: bool = False
) -> None:
    """Hold a result against the law; see `Judge.close`."""
    label = name or "result"
    judge.require(
        actual.shape == expected.value.shape,
        f"{label} has shape {list(actual.shape)}; expected {list(expected.value.shape)}",
    )
    judge.require(
        actual.dtype is expected.dtype,
        f"{label} is {_short(actual.dtype)}; expected {_short(expected.dtype)}",
    )
    choices = (expected, *expected.alternatives)
    errors = [normalised_error(actual, one) for one in choices]
    found = [summarise(error) for error in errors]
    best = min(range(len(found)), key=lambda index: found[index].max)
    _judge(judge, label, actual, choices[best], found[best])
    if bias and expected.dtype is not torch.float32:
        judge.at_most(
            f"{label}: rounding bias in half ulps",
            abs(rounding_bias(actual, choices[best])),
            law().bias,
        )


def _judge(
    judge: Judge, label: str, actual: torch.Tensor, expected: Expected, found: ErrorSummary
) -> None:
    limit = law().max_error
    judge.metric(f"{label}: max error", found.max, limit)
    judge.metric(f"{label}: rms error", found.rms)
    if not found.max <= limit:
        given, right = actual[found.at].item(), expected.value[found.at].item()
        judge.fail(
            f"{label}: max normalised error is {found.max:.4g}; at most {limit:.4g} is allowed. At "
            f"{list(found.at)} it is {given:.9g}; exactly it would be {right:.9g}"
        )
    if found.rms > law().rms_warning:
        judge.warn(
            f"{label}: rms error {found.rms:.2f} is above {law().rms_warning}; correct rounding "
            "stays below"
        )


def compare_exact(judge: Judge, actual: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """Equal to the bit, any NaN for any NaN; see `Judge.exact`."""
    judge.require(
        actual.shape == expected.shape and actual.dtype is expected.dtype,
        f"{what} is {_short(actual.dtype)} {list(actual.shape)}; expected "
        f"{_short(expected.dtype)} {list(expected.shape)}",
    )
    differs = differing(actual, expected)
    if bool(differs.any()):
        at = tuple(int(one) for one in differs.nonzero()[0])
        judge.fail(
            f"{what} differs in {int(differs.sum())} of {differs.numel()} elements; at {list(at)} "
            f"it is {_item(actual, at)}, expected {_item(expected, at)}"
        )


def differing(actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Bool per element: another bit; NaN equals NaN of any payload."""
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[actual.element_size()]
    a, b = actual.contiguous(), expected.contiguous()
    differs = a.view(bits) != b.view(bits)
    if a.dtype.is_floating_point:
        wide_a, wide_b = a.to(F64), b.to(F64)
        differs = differs & ~(wide_a.isnan() & wide_b.isnan())
    return differs


def _same_pattern(actual: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    both_finite = torch.isfinite(actual) & torch.isfinite(value)
    return both_finite | (actual.isnan() & value.isnan()) | (actual == value)


def _item(tensor: torch.Tensor, at: tuple[int, ...]) -> str:
    return f"{tensor[at].item():.9g}" if tensor.dtype.is_floating_point else str(tensor[at].item())


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
