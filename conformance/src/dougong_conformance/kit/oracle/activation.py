"""Gated activations."""

from __future__ import annotations

import math

import torch

from dougong_conformance.kit.metric import F64, Expected


def gated(name: str, x: torch.Tensor) -> Expected:
    """``act(x[..., :d]) * x[..., d:]``; the first factor may be rounded."""
    gate, up = x.to(F64).chunk(2, dim=-1)
    value = activation(name, gate) * up
    condition = activation_size(name, gate) * up.abs()
    return Expected(value, condition, value.abs(), 1, x.dtype)


def activation(name: str, x: torch.Tensor) -> torch.Tensor:
    """``"silu"``, ``"gelu"`` (by the error function) or ``"gelu_pytorch_tanh"``."""
    if name == "silu":
        return x * torch.sigmoid(x)
    if name == "gelu":
        return x * _normal_share(x)
    return 0.5 * x * (1 + torch.tanh(_inner(x)))


def activation_size(name: str, x: torch.Tensor) -> torch.Tensor:
    """The same on absolute values: what a cancelling ``1 + tanh`` has to be excused for."""
    if name == "silu":
        return (x * torch.sigmoid(x)).abs()
    if name == "gelu":
        return x.abs() * _normal_share(x.abs())
    return 0.5 * x.abs() * (1 + torch.tanh(_inner(x)).abs())


def activation_slope(name: str, x: torch.Tensor) -> torch.Tensor:
    """Size of the derivative: how far an error of ``x`` reaches."""
    if name == "silu":
        sigmoid = torch.sigmoid(x)
        return (sigmoid * (1 + x * (1 - sigmoid))).abs()
    if name == "gelu":
        density = torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi)
        return (_normal_share(x) + x * density).abs()
    tanh = torch.tanh(_inner(x))
    inner_slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x.square())
    return (0.5 * (1 + tanh) + 0.5 * x * (1 - tanh.square()) * inner_slope).abs()


def _normal_share(x: torch.Tensor) -> torch.Tensor:
    """Share of a normal distribution below ``x``; no cancellation far below zero."""
    tail: torch.Tensor = torch.special.erfc(-x / math.sqrt(2))
    return 0.5 * tail


def _inner(x: torch.Tensor) -> torch.Tensor:
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
