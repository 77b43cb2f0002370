"""Gated activations against their definitions in Python's own floats."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pytest
import torch

from dougong.contracts import ConfigError
from dougong.ops import CustomOp
from dougong.ops.activation import GeluAndMul, SiluAndMul, gated_activation


def silu(value: float) -> float:
    return value / (1 + math.exp(-value)) if value > -700 else 0.0


def gelu(value: float) -> float:
    return value * math.erfc(-value / math.sqrt(2)) / 2


def gelu_tanh(value: float) -> float:
    inner = math.sqrt(2 / math.pi) * (value + 0.044715 * value**3)
    return value / (1 + math.exp(min(-2 * inner, 700)))


DEFINITIONS: Mapping[str, Callable[[float], float]] = {
    "silu": silu,
    "gelu": gelu,
    "gelu_pytorch_tanh": gelu_tanh,
}
POINTS = [0.0, -0.0, 1e-20, 1e-3, 0.3, 0.7, 1.0, 1.7, 2.5, 3.3, 4.1, 6.0, 9.0, 30.0, 3e4]


def gated(name: str, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = gated_activation(name)(torch.cat((gate, up), dim=-1))
    return result


@pytest.mark.parametrize("name", DEFINITIONS)
def test_the_first_half_gates_the_second(name: str) -> None:
    torch.manual_seed(0)
    gate = torch.tensor([[sign * point for sign in (1, -1)] for point in POINTS])
    up = torch.randn(gate.shape)
    gates, ups = gate.double().flatten().tolist(), up.double().flatten().tolist()
    expected = [DEFINITIONS[name](g) * u for g, u in zip(gates, ups, strict=True)]
    found = gated(name, gate, up)
    # So tight that tanh in place of the error function, and a coarse table, fail.
    torch.testing.assert_close(
        found.double(), torch.tensor(expected).double().view(gate.shape), rtol=1e-5, atol=3e-7
    )


@pytest.mark.parametrize("name", DEFINITIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_few_bits_stay_few_bits_with_two_roundings(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    gate, up = (torch.randn(50, 33).to(dtype) for _ in range(2))
    found = gated(name, gate, up)
    assert found.dtype == dtype
    activated = torch.tensor([DEFINITIONS[name](g) for g in gate.double().flatten().tolist()])
    expected = (activated.view(gate.shape).to(dtype).double() * up.double()).to(dtype)
    assert (found != expected).double().mean() < 0.01


@pytest.mark.parametrize("name", DEFINITIONS)
def test_no_rows_strides_and_what_is_not_a_number(name: str) -> None:
    op = gated_activation(name)
    assert op(torch.empty(0, 10)).shape == (0, 5)
    torch.manual_seed(0)
    wide = torch.randn(3, 28)
    assert torch.equal(op(wide[:, ::2]), op(wide[:, ::2].contiguous()))
    bad = torch.tensor([[torch.nan, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, torch.nan]])
    assert op(bad).isnan().tolist() == [[True, False], [False, True]]


def test_an_activation_is_found_by_the_checkpoints_name_or_refused() -> None:
    found: list[CustomOp] = [gated_activation(name) for name in DEFINITIONS]
    assert [type(op) for op in found] == [SiluAndMul, GeluAndMul, GeluAndMul]
    with pytest.raises(ConfigError, match=r"hidden_act='relu' is not known; known: silu, gelu"):
        gated_activation("relu")
