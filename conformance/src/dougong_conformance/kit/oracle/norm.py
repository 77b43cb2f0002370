"""Norms."""

from __future__ import annotations

import torch

from dougong_conformance.kit.metric import F64, Expected


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> Expected:
    """``x / sqrt(mean(x²) + eps) * weight``; ``x / sqrt(...)`` may be rounded."""
    value = _rms_norm(x.to(F64), weight, eps)
    return Expected(value, value.abs(), value.abs(), x.shape[-1], x.dtype)


def fused_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
) -> tuple[Expected, torch.Tensor]:
    """The norm of the sum, rounded or not, and the residual: the sum rounded once, exactly."""
    if residual is None:
        return rms_norm(x, weight, eps), x
    exact = x.to(F64) + residual.to(F64)
    total = exact.to(x.dtype)
    rounded = rms_norm(total, weight, eps)
    value = _rms_norm(exact, weight, eps)
    unrounded = Expected(value, value.abs(), value.abs(), x.shape[-1], x.dtype)
    both = Expected(
        rounded.value, rounded.condition, rounded.rounded, rounded.n, x.dtype, (unrounded,)
    )
    return both, total


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float
) -> Expected:
    """``(x - mean) / sqrt(var + eps) * weight + bias``; before the bias it may be rounded."""
    wide, factor = x.to(F64), weight.to(F64)
    mean = wide.mean(-1, keepdim=True)
    scale = torch.rsqrt((wide - mean).square().mean(-1, keepdim=True) + eps)
    normed = (wide - mean) * scale * factor
    condition = (wide.abs() + mean.abs()) * scale * factor.abs()
    rounded = normed.abs()
    if bias is None:
        return Expected(normed, condition, rounded, x.shape[-1], x.dtype)
    offset = bias.to(F64)
    return Expected(
        normed + offset, condition + offset.abs(), rounded + offset.abs(), x.shape[-1], x.dtype
    )


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.to(F64)
