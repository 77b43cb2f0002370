"""Root-mean-square normalisation (Zhang and Sennrich 2019, arXiv:1910.07467)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn

from dougong.ops.custom_op import CustomOp
from dougong.ops.example_values import filled, seeded


class RMSNorm(CustomOp):
    """``x / sqrt(mean(x²) + eps) * weight`` over the last axis, computed in float32.

    Call: ``(x)`` with ``x`` ``[num_tokens, hidden_size]`` or ``[num_tokens, heads, head_dim]`` →
    same shape and dtype.

    Args:
        hidden_size: Length of the last axis.
        eps: Added to the mean square.
        dtype: Of the weight ``[hidden_size]``.
    """

    key: ClassVar[str] = "rms_norm"
    property_names: ClassVar[tuple[str, ...]] = ("hidden_size",)
    kernel_arg_names: ClassVar[tuple[str, ...]] = ("weight", "eps")

    def __init__(self, hidden_size: int, eps: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(hidden_size, dtype=dtype), requires_grad=False)

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three rows."""
        return filled(cls(24, 1e-5, torch.float32)), (seeded(3, 24),)

    def forward_native(self, x: torch.Tensor) -> torch.Tensor:
        """The normalised value is rounded to the storage dtype before the weight is applied."""
        return _rms_norm(x, self.weight, self.eps)

    def kernel_args(self) -> tuple[Any, ...]:
        """``(weight, eps)``."""
        return self.weight, self.eps


class FusedAddRMSNorm(RMSNorm):
    """Residual sum and `RMSNorm` in one.

    Call: ``(x, residual)`` → ``(normed, residual)``. The new residual is ``x + residual`` rounded
        to
    the storage dtype, or ``x`` itself where ``residual`` is ``None``. Both inputs may be
    overwritten.
    """

    key: ClassVar[str] = "fused_add_rms_norm"
    may_mutate: ClassVar[tuple[str, ...]] = ("x", "residual")

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three rows and their residual."""
        op = filled(cls(24, 1e-5, torch.float32))
        return op, (seeded(3, 24), seeded(3, 24, seed=1))

    def forward_native(  # type: ignore[override]
        self, x: torch.Tensor, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add, then normalise the rounded sum."""
        total = x if residual is None else x + residual
        return _rms_norm(total, self.weight, self.eps), total


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return (wide * scale).to(x.dtype) * weight
