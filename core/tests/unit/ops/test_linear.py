"""Products with a weight, and the fused slot against its parts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from dougong.contracts import ConfigError
from dougong.ops import GateUpAct, Linear


def filled(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        parameter.data.normal_()
    return module


@pytest.mark.parametrize("has_bias", [False, True])
def test_linear_multiplies_by_the_transposed_weight(has_bias: bool) -> None:
    torch.manual_seed(0)
    op = Linear(7, 5, has_bias, torch.float32)
    filled(op)
    x = torch.randn(3, 7)
    expected = x.double() @ op.weight.double().T
    if op.bias is not None:
        expected = expected + op.bias.double()
    torch.testing.assert_close(op(x).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_pytorch_tanh"])
def test_gate_up_act_gates_the_second_half_with_the_first(activation: str) -> None:
    torch.manual_seed(0)
    op = GateUpAct(6, 4, activation, True, torch.float32)
    filled(op)
    x = torch.randn(3, 6)
    assert op.bias is not None
    gate, up = (x.double() @ op.weight.double().T + op.bias.double()).chunk(2, -1)
    functions: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "silu": nn.functional.silu,
        "gelu": nn.functional.gelu,
        "gelu_pytorch_tanh": lambda value: nn.functional.gelu(value, approximate="tanh"),
    }
    expected = functions[activation](gate) * up
    torch.testing.assert_close(op(x).double(), expected, rtol=1e-5, atol=1e-5)


def test_an_unknown_activation_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"hidden_act='swoosh'.*silu.*gelu"):
        GateUpAct(4, 4, "swoosh", False, torch.float32)
