"""Norms, rotation and activation, interpreted, against the float64 oracles (rung L5)."""

from __future__ import annotations

import pytest
import torch
from dougong_conformance.kit.generate import Draw
from dougong_conformance.kit.oracle import activation as activation_oracle
from dougong_conformance.kit.oracle import norm as norm_oracle
from dougong_conformance.kit.oracle import rotary as rotary_oracle

from dougong_triton_kernels.activation import silu_and_mul
from dougong_triton_kernels.norm import fused_add_rms_norm, rms_norm
from dougong_triton_kernels.rotary import rotary_embedding
from tests.lane.conftest import Shows
from tests.lane.judged import is_right, largest_error, limit

pytestmark = pytest.mark.lane

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SIZES = (33, 96, 1024, 8192)
EPS = 1e-5


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_rms_norm_lies_within_the_law(size: int, dtype: torch.dtype, shows: Shows) -> None:
    draw = Draw("rms_norm", dtype=dtype)
    x, weight = draw.normal(5, size, shift=0.5), draw.normal(size, shift=1.0)
    out, expected = rms_norm(x, weight, EPS), norm_oracle.rms_norm(x, weight, EPS)
    error = largest_error(out, expected)
    shows("L5", "rms_norm, interpreted, against float64", largest_error=error, limit=limit())
    assert is_right(out, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rms_norm_of_heads_takes_a_slice_of_a_wider_tensor(
    dtype: torch.dtype, shows: Shows
) -> None:
    draw = Draw("heads", dtype=dtype)
    q = draw.normal(4, 6, 80)[:, 1:4]
    weight = draw.normal(80, shift=1.0)
    expected = norm_oracle.rms_norm(q, weight, EPS)
    out = rms_norm(q, weight, EPS, out=q)  # in its own place
    error = largest_error(out, expected)
    shows("L5", "rms_norm, interpreted, against float64", largest_error=error, limit=limit())
    assert out is q
    assert is_right(out, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_the_residual_is_the_sum_rounded_once(size: int, dtype: torch.dtype, shows: Shows) -> None:
    draw = Draw("add", dtype=dtype)
    x, residual, weight = draw.normal(3, size), draw.normal(3, size), draw.normal(size, shift=1.0)
    expected, total = norm_oracle.fused_add_rms_norm(x, residual, weight, EPS)
    out, kept = fused_add_rms_norm(x, residual, weight, EPS)
    error = largest_error(out, expected)
    shows(
        "L5", "add and rms_norm, interpreted, against float64", largest_error=error, limit=limit()
    )
    assert is_right(out, expected)
    assert kept is residual
    assert torch.equal(kept, total)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [1, 33, 1500])
def test_silu_and_mul_lies_within_the_law(size: int, dtype: torch.dtype, shows: Shows) -> None:
    x = Draw("silu", dtype=dtype).normal(4, 2 * size, scale=3.0)
    out, expected = silu_and_mul(x), activation_oracle.gated("silu", x)
    error = largest_error(out, expected)
    shows("L5", "silu_and_mul, interpreted, against float64", largest_error=error, limit=limit())
    assert is_right(out, expected)


@pytest.mark.parametrize("is_neox", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rotary_dim", [16, 20, 80])
def test_rotation_lies_within_the_law(
    rotary_dim: int, dtype: torch.dtype, is_neox: bool, shows: Shows
) -> None:
    draw = Draw("rotary", dtype=dtype)
    wide = draw.normal(4, 9, 80)
    q, k = wide[:, :5], wide[:, 5:6]
    rest = wide[:, 6:].clone()
    positions = torch.tensor([0, 3, 31, 7])
    angles = torch.arange(32).unsqueeze(1) * 0.7 ** torch.arange(rotary_dim // 2)
    cache = torch.cat((angles.cos(), angles.sin()), dim=1)
    expected = [rotary_oracle.rotary(x, positions, cache, is_neox=is_neox) for x in (q, k)]
    turned = rotary_embedding(positions, q, k, cache, is_neox=is_neox)
    errors = [largest_error(*pair) for pair in zip(turned, expected, strict=True)]
    largest = max(errors)
    shows("L5", "rotary_embedding, interpreted", largest_error=largest, limit=limit())
    assert turned[0] is q
    assert all(is_right(*pair) for pair in zip(turned, expected, strict=True))
    assert torch.equal(wide[:, 6:], rest), "elements beside the heads were written"


def test_the_other_kind_of_pairs_is_found_out(shows: Shows) -> None:
    """Planted: halves where neighbours are asked for."""
    shows("L5", "planted faults of rows found out")
    q = Draw("pairs").normal(3, 2, 16)
    positions = torch.tensor([1, 2, 3])
    angles = torch.arange(8).unsqueeze(1) * 0.7 ** torch.arange(8)
    cache = torch.cat((angles.cos(), angles.sin()), dim=1)
    expected = rotary_oracle.rotary(q, positions, cache, is_neox=False)
    turned, _ = rotary_embedding(positions, q, q.clone(), cache, is_neox=True)
    assert not largest_error(turned, expected) <= limit()


def test_a_norm_cut_instead_of_rounded_is_found_out(shows: Shows) -> None:
    """Planted: bfloat16 as the interpreter itself would make it, biased by half an ulp."""
    shows("L5", "planted faults of rows found out")
    draw = Draw("cut", dtype=torch.bfloat16)
    x, weight = draw.normal(5, 1024), draw.normal(1024, shift=1.0)
    expected = norm_oracle.rms_norm(x, weight, EPS)
    bits = expected.value.float().view(torch.int32) & -0x10000
    cut = bits.view(torch.float32).bfloat16()
    assert not is_right(cut, expected)
