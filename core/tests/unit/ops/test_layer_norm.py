"""Layer normalisation against its definition, element by element in Python's own floats."""

from __future__ import annotations

import math

import pytest
import torch

from dougong.ops import LayerNorm

EPS = 1e-3


def oracle(x: torch.Tensor, op: LayerNorm) -> torch.Tensor:
    weight = op.weight.tolist()
    bias = [0.0] * op.hidden_size if op.bias is None else op.bias.tolist()
    rows = []
    for row in x.reshape(-1, op.hidden_size).tolist():
        mean = math.fsum(row) / len(row)
        variance = math.fsum((value - mean) ** 2 for value in row) / len(row)
        rows.append(
            [
                (value - mean) / math.sqrt(variance + op.eps) * w + b
                for value, w, b in zip(row, weight, bias, strict=True)
            ]
        )
    return torch.tensor(rows, dtype=torch.float64).view(x.shape)


def made(hidden_size: int, dtype: torch.dtype = torch.float32, has_bias: bool = True) -> LayerNorm:
    torch.manual_seed(0)
    op = LayerNorm(hidden_size, EPS, dtype, has_bias)
    for parameter in op.parameters():
        parameter.data.normal_()
    return op


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("shape", [(3, 33), (2, 5, 16), (1, 1), (4, 640)])
def test_the_last_axis_is_normalised(shape: tuple[int, ...], has_bias: bool) -> None:
    op = made(shape[-1], has_bias=has_bias)
    x = torch.randn(shape) * 0.05  # so small that eps counts
    torch.testing.assert_close(op(x).double(), oracle(x, op), rtol=1e-5, atol=1e-5)


def test_a_large_mean_does_not_drown_the_rest() -> None:
    op = made(64)
    x = torch.randn(4, 64) + 3000  # squares of 3000 leave float32 no digit for the rest
    torch.testing.assert_close(op(x).double(), oracle(x, op), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_few_bits_are_rounded_once(dtype: torch.dtype) -> None:
    op = made(512, dtype)
    x = (torch.randn(16, 512) * 3).to(dtype)
    found = op(x)
    assert found.dtype == dtype
    # One rounding gives the nearest number; float32 on the way hardly ever tips a tie.
    assert (found != oracle(x, op).to(dtype)).double().mean() < 0.002


def test_sums_are_not_taken_in_the_storage_dtype() -> None:
    op = made(8192, torch.float16)
    op.weight.data.fill_(1.0)
    x = torch.full((1, 8192), 200.0, dtype=torch.float16)  # the sum, and each square, overflow
    x[0, ::2] = -200.0
    torch.testing.assert_close(op(x).double(), oracle(x, op), rtol=1e-3, atol=1e-3)


def test_a_row_of_equal_numbers_gives_the_bias() -> None:
    op = made(7)
    assert op.bias is not None
    rows = torch.tensor([[0.0], [2.5]]).expand(2, 7)
    torch.testing.assert_close(op(rows), op.bias.expand(2, 7))


def test_no_rows_give_no_rows() -> None:
    assert made(8)(torch.empty(0, 8)).shape == (0, 8)


def test_a_row_that_is_not_finite_spoils_itself_alone() -> None:
    op, x = made(8), torch.randn(3, 8)
    x[1, 3], x[2, 0] = torch.nan, torch.inf
    found = op(x)
    torch.testing.assert_close(found[0], op(x[:1])[0])
    assert found[1:].isnan().all()


def test_strides_make_no_difference_and_the_input_stays() -> None:
    op, wide = made(6), torch.randn(4, 12)
    before = wide.clone()
    assert torch.equal(op(wide[:, ::2]), op(wide[:, ::2].contiguous()))
    assert torch.equal(op(wide[:, :6]), op(wide[:, :6].contiguous()))
    assert torch.equal(wide, before)


def test_torch_agrees() -> None:
    op, x = made(48), torch.randn(5, 48)
    expected = torch.nn.functional.layer_norm(x, (48,), op.weight, op.bias, EPS)
    torch.testing.assert_close(op(x), expected)
