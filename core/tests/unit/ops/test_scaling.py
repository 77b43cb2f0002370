from __future__ import annotations

import math

import pytest
import torch

from dougong.ops import OP_KEYS
from dougong.ops.scaling import Scale, SoftCap, rounded

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_product_is_rounded_once_and_keeps_its_dtype(dtype: torch.dtype) -> None:
    x = torch.linspace(-3, 3, 50).to(dtype)
    found = Scale(0.22)(x)
    assert found.dtype == dtype
    torch.testing.assert_close(found, (x.double() * 0.22).to(dtype), rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_cap_bends_what_is_large_and_leaves_what_is_small(dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, 0.01, -0.01, 1e4, -1e4, math.inf], dtype=dtype)
    found = SoftCap(30.0)(x)
    assert found.dtype == dtype
    wanted = torch.tensor([0.0, 0.01, -0.01, 30.0, -30.0, 30.0], dtype=dtype)
    torch.testing.assert_close(found, wanted, rtol=1e-2, atol=0)


def test_a_cap_is_cap_times_tanh() -> None:
    x = torch.linspace(-20, 20, 81)
    wanted = (5 * (x.double() / 5).tanh()).float()
    torch.testing.assert_close(SoftCap(5.0)(x), wanted)


@pytest.mark.parametrize("op", [Scale, SoftCap])
def test_an_example_runs_and_says_what_it_is_made_with(op: type[Scale | SoftCap]) -> None:
    made, arguments = op.example()
    assert made(*arguments).shape == arguments[0].shape
    assert list(made.properties()) == list(op.kernel_arg_names)
    assert tuple(made.properties().values()) == made.kernel_args()


def test_neither_is_in_the_catalogue() -> None:
    assert not {Scale.key, SoftCap.key} & OP_KEYS


def test_a_constant_in_a_narrow_dtype_is_the_nearest_there() -> None:
    assert rounded(math.sqrt(640), torch.bfloat16) == 25.25
    assert rounded(0.5, torch.float16) == 0.5


def test_a_constant_is_rounded_on_the_host_even_in_an_outline() -> None:
    with torch.device("meta"):
        assert rounded(3.0, torch.bfloat16) == 3.0
