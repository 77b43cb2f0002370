"""Norms: statistics in float32, the normalised value rounded before the weight."""

from __future__ import annotations

import torch

from tests.references.limits import check, check_float


def rms_norm(
    result: torch.Tensor, input: torch.Tensor, weight: torch.Tensor | None, epsilon: float
) -> None:
    """Rows may lie apart; the result may not."""
    check_float(input, "call_rms_norm_kernel")
    check(result.is_contiguous(), "Expected out.is_contiguous() to be true")
    check(2 <= input.dim() <= 4, "rms_norm: rank of input must be 2, 3 or 4")
    check(input.stride(-1) == 1, "Expected input.stride(-1) == 1 to be true")
    result.copy_(_normed(input, weight, epsilon))


def fused_add_rms_norm(
    input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, epsilon: float
) -> None:
    """The sum replaces the residual, what is made of it the input."""
    check_float(input, "call_fused_add_rms_norm_kernel")
    check(residual.dtype == input.dtype, "residual and input must have the same dtype")
    check(residual.is_contiguous(), "residual must be contiguous")
    residual.copy_(input + residual)
    input.copy_(_normed(residual, weight, epsilon))


def layer_norm(
    result: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    epsilon: float,
) -> None:
    """All of it in float32, rounded once."""
    check_float(input, "call_layer_norm_kernel")
    check(result.is_contiguous() and input.is_contiguous(), "layer_norm takes contiguous tensors")
    wide = input.float()
    centred = wide - wide.mean(dim=-1, keepdim=True)
    normed = centred * torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + epsilon)
    if weight is not None:
        normed = normed * weight.float()
    if bias is not None:
        normed = normed + bias.float()
    result.copy_(normed.to(input.dtype))


def _normed(x: torch.Tensor, weight: torch.Tensor | None, epsilon: float) -> torch.Tensor:
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + epsilon)
    normed = (wide * scale).to(x.dtype)
    if weight is None:
        return normed
    check(weight.dtype == x.dtype, "rms_norm: weight dtype must match input dtype")
    check(weight.shape == x.shape[-1:], "rms_norm: 1D weight size must match hidden_size")
    return normed * weight
