"""Root-mean-square normalisation: ``npu_rms_norm`` and its fused forms."""

from __future__ import annotations

import torch

from tests.references.refusals import HALVES, require, require_dtype

_FLOATS = (*HALVES, torch.float32)


def npu_rms_norm(
    input: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """``(normed, rstd)``; ``rstd`` is float32 with the last axis of length 1."""
    return _normed("npu_rms_norm", input, gamma, epsilon)


def npu_add_rms_norm(
    x1: torch.Tensor, x2: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``(normed, rstd, x1 + x2)``; the sum is rounded to the storage dtype first."""
    op = "npu_add_rms_norm"
    require(x1.shape == x2.shape, op, f"x1 {tuple(x1.shape)} and x2 {tuple(x2.shape)} differ")
    require_dtype(op, _FLOATS, x1=x1, x2=x2)
    total = x1 + x2
    normed, rstd = _normed(op, total, gamma, epsilon)
    return normed, rstd, total


def _normed(
    op: str, x: torch.Tensor, gamma: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    require_dtype(op, _FLOATS, input=x, gamma=gamma)
    trailing = x.shape[x.dim() - gamma.dim() :]
    require(gamma.shape == trailing, op, f"gamma {tuple(gamma.shape)} for rows {tuple(trailing)}")
    require(gamma.dim() == 1, op, "this reference normalises one axis")
    wide = x.float()
    rstd = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + epsilon)
    return (wide * rstd).to(x.dtype) * gamma, rstd
