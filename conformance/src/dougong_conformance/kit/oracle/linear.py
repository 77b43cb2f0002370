"""Products with a weight."""

from __future__ import annotations

import torch

from dougong_conformance.kit.metric import F64, HALF_ULP, Expected
from dougong_conformance.kit.oracle.activation import (
    activation,
    activation_size,
    activation_slope,
)


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    dtype: torch.dtype | None = None,
) -> Expected:
    """``x @ weight.T + bias``; the product may be rounded before the bias is added.

    Args:
        x: ``[num_tokens, in_features]``.
        weight: ``[out_features, in_features]``.
        bias: ``[out_features]``.
        dtype: Of the result; ``None``: as ``x``. A wider one may hold what was rounded to ``x``'s.
    """
    value, condition = _product(x, weight)
    rounded = torch.zeros_like(value)
    if dtype is not None and dtype is not x.dtype:
        rounded = value.abs() * (HALF_ULP[x.dtype] / HALF_ULP[dtype])
    if bias is not None:
        offset = bias.to(F64)
        rounded = rounded + value.abs() + offset.abs()
        value, condition = value + offset, condition + offset.abs()
    return Expected(value, condition, rounded, x.shape[-1], dtype or x.dtype)


def gate_up_act(
    name: str, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> Expected:
    """``act(x @ G.T) * (x @ U.T)``; gate, up and ``act(gate)`` may each be rounded."""
    value, condition, rounded = gated_product(
        name, x, weight, None if bias is None else bias.to(F64)
    )
    return Expected(value, condition, rounded, x.shape[-1], x.dtype)


def gated_product(
    name: str, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Value, condition and what may be rounded, of a gated MLP's first half."""
    (gate, up), (gate_size, up_size) = (both.chunk(2, dim=-1) for both in _product(x, weight))
    products = gate.abs(), up.abs()
    if bias is not None:
        gate_bias, up_bias = bias.chunk(2)
        # With a bias the product and the sum may both be rounded.
        products = gate.abs() + gate_bias.abs(), up.abs() + up_bias.abs()
        gate, up = gate + gate_bias, up + up_bias
        gate_size, up_size = gate_size + gate_bias.abs(), up_size + up_bias.abs()
        products = products[0] + gate.abs(), products[1] + up.abs()
    acted, slope = activation(name, gate), activation_slope(name, gate)
    value = acted * up
    condition = (
        slope * gate_size * up.abs()
        + acted.abs() * up_size
        + activation_size(name, gate) * up.abs()
    )
    rounded = slope * products[0] * up.abs() + acted.abs() * products[1] + value.abs()
    return value, condition, rounded


def _product(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    wide, factor = x.to(F64), weight.to(F64)
    return wide @ factor.T, wide.abs() @ factor.abs().T
