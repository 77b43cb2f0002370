"""The error law itself."""

from __future__ import annotations

import pytest
import torch

from dougong_conformance.judging import Judge
from dougong_conformance.kit.limits import law
from dougong_conformance.kit.metric import (
    HALF_ULP,
    Expected,
    compare,
    compare_exact,
    normalised_error,
    rounding_bias,
)
from dougong_conformance.outcomes import CheckFailed


def expected_of(
    value: torch.Tensor, dtype: torch.dtype = torch.bfloat16, *, rounded: float = 0.0
) -> Expected:
    zeros = torch.zeros_like(value)
    return Expected(value, zeros, zeros + rounded, 1, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_correct_rounding_has_an_error_of_at_most_one(dtype: torch.dtype) -> None:
    value = torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    error = normalised_error(value.to(dtype), expected_of(value, dtype))
    assert 0.5 < error.max() <= 1.0


def test_an_ulp_is_an_error_of_two() -> None:
    value = torch.tensor([1.0], dtype=torch.float64)
    error = normalised_error(torch.tensor([1 + 2.0**-7]).bfloat16(), expected_of(value))
    assert float(error) == pytest.approx(2.0)


def test_what_may_be_rounded_and_what_was_summed_widen_the_scale() -> None:
    value = torch.tensor([1.0], dtype=torch.float64)
    actual = torch.tensor([1 + 2.0**-7]).bfloat16()
    wide = expected_of(value, rounded=3.0)
    assert float(normalised_error(actual, wide)) == pytest.approx(0.5)
    summed = Expected(value, value * 2**16, value * 0, 4, torch.bfloat16)
    assert float(normalised_error(actual, summed)) == pytest.approx(2**-7 / (2**-8 + 2 * 2**-8))


def test_nan_equals_nan_and_nothing_else() -> None:
    value = torch.tensor([float("nan"), 1.0, float("inf"), float("-inf")], dtype=torch.float64)
    same = value.bfloat16()
    assert float(normalised_error(same, expected_of(value)).max()) == 0.0
    for at, other in ((0, 1.0), (1, float("nan")), (2, float("-inf")), (3, 1.0)):
        wrong = same.clone()
        wrong[at] = other
        assert torch.isinf(normalised_error(wrong, expected_of(value))[at])


def test_nan_in_the_result_fails_with_its_place() -> None:
    value = torch.ones(2, 3, dtype=torch.float64)
    actual = value.bfloat16()
    actual[1, 2] = float("nan")
    with pytest.raises(CheckFailed, match=r"At \[1, 2\] it is nan"):
        compare(Judge(), actual, expected_of(value))


def test_shape_and_dtype_are_required() -> None:
    value = torch.ones(2, dtype=torch.float64)
    with pytest.raises(CheckFailed, match="shape"):
        compare(Judge(), torch.ones(3).bfloat16(), expected_of(value))
    with pytest.raises(CheckFailed, match="float32; expected bfloat16"):
        compare(Judge(), torch.ones(2), expected_of(value))


def test_nothing_has_no_error() -> None:
    judge = Judge()
    compare(judge, torch.ones(0, 4).bfloat16(), expected_of(torch.ones(0, 4, dtype=torch.float64)))
    assert [metric.value for metric in judge.metrics] == [0.0, 0.0]


def test_one_alternative_has_to_hold_as_a_whole() -> None:
    one, two = (torch.full((4,), value, dtype=torch.float64) for value in (1.0, 2.0))
    both = Expected(one, one * 0, one * 0, 1, torch.bfloat16, (expected_of(two),))
    for right in (one, two):
        compare(Judge(), right.bfloat16(), both)
    mixed = torch.tensor([1.0, 2.0, 1.0, 2.0]).bfloat16()
    with pytest.raises(CheckFailed):
        compare(Judge(), mixed, both)


def test_rounding_to_nearest_has_no_bias_and_cutting_has() -> None:
    value = torch.randn(20000, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    near = value.to(torch.float32).bfloat16()
    cut = (value.float().view(torch.int32) & -65536).view(torch.float32).bfloat16()
    assert abs(rounding_bias(near, expected_of(value))) < 0.02
    assert rounding_bias(cut, expected_of(value)) < -0.5
    with pytest.raises(CheckFailed, match="bias"):
        compare(Judge(), cut, expected_of(value), bias=True)


def test_a_device_that_flushes_may_lose_subnormals_and_no_more() -> None:
    value = torch.tensor([2.0**-128, 2.0**-100], dtype=torch.float64)
    flushed = torch.tensor([0.0, 2.0**-100])
    plain = expected_of(value, torch.float32)
    assert normalised_error(flushed, plain).max() > law().max_error
    assert normalised_error(flushed, plain.flushing()).max() <= 1.0


def test_rms_above_its_mark_is_a_warning_and_no_failure() -> None:
    value = torch.ones(64, dtype=torch.float64)
    judge = Judge()
    compare(judge, (value + 2 * HALF_ULP[torch.bfloat16]).bfloat16(), expected_of(value), name="x")
    assert judge.warnings
    assert "rms" in judge.warnings[0]


def test_exact_comparison_tells_zeros_apart_and_names_the_first_difference() -> None:
    with pytest.raises(CheckFailed, match=r"1 of 2 elements; at \[1\]"):
        compare_exact(Judge(), torch.tensor([1.0, -0.0]), torch.tensor([1.0, 0.0]), "what")
    nan = torch.tensor([float("nan")])
    compare_exact(Judge(), nan, -nan, "NaN of another payload")


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float8_e4m3fn])
def test_exact_comparison_takes_every_dtype(dtype: torch.dtype) -> None:
    ones, zeros = torch.ones(3).to(dtype), torch.zeros(3).to(dtype)
    compare_exact(Judge(), ones, ones.clone(), "same")
    with pytest.raises(CheckFailed):
        compare_exact(Judge(), ones, zeros, "other")
