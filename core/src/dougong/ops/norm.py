"""Root-mean-square normalisation (Zhang and Sennrich 2019, arXiv:1910.07467)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn

from dougong.ops.custom_op import CustomOp
from dougong.ops.example_values import filled, seeded
from dougong.ops.weight_format import format_of


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
    property_names: ClassVar[tuple[str, ...]] = ("hidden_size", "weight_format")
    kernel_arg_names: ClassVar[tuple[str, ...]] = ("weight", "eps")

    def __init__(self, hidden_size: int, eps: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.eps = eps
        self.weight_format = format_of(dtype)
        self.weight = nn.Parameter(torch.empty(hidden_size, dtype=dtype), requires_grad=False)

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three rows."""
        return filled(cls(24, 1e-5, torch.float32)), (seeded(3, 24),)

    def forward_native(self, x: torch.Tensor) -> torch.Tensor:
        """The normalised value is rounded to the storage dtype before the weight is applied."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self.eps)
        return (wide * scale).to(x.dtype) * self.weight

    def kernel_args(self) -> tuple[Any, ...]:
        """``(weight, eps)``."""
        return self.weight, self.eps


class FusedAddRMSNorm(CustomOp):
    """Fused slot: residual sum and `RMSNorm` in one.

    Call: ``(x, residual)`` → ``(normed, residual)``. The new residual is ``x + residual`` rounded
    to the storage dtype, or ``x`` itself where ``residual`` is ``None``. Both inputs may be
    overwritten.

    Its part ``norm`` is an op of its own and holds the weight: what is bound to that runs where
    this slot is native.

    Args:
        hidden_size: As `RMSNorm` takes it.
        eps: As `RMSNorm` takes it.
        dtype: As `RMSNorm` takes it.
    """

    key: ClassVar[str] = "fused_add_rms_norm"
    property_names: ClassVar[tuple[str, ...]] = ("hidden_size", "weight_format")
    kernel_arg_names: ClassVar[tuple[str, ...]] = ("weight", "eps")
    may_mutate: ClassVar[tuple[str, ...]] = ("x", "residual")

    def __init__(self, hidden_size: int, eps: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.eps = eps
        self.weight_format = format_of(dtype)
        self.norm = RMSNorm(hidden_size, eps, dtype)

    @property
    def weight(self) -> torch.Tensor:
        """The norm's, ``[hidden_size]``."""
        return self.norm.weight

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three rows and their residual."""
        op = filled(cls(24, 1e-5, torch.float32))
        return op, (seeded(3, 24), seeded(3, 24, seed=1))

    def forward_native(
        self, x: torch.Tensor, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add, then normalise the rounded sum."""
        total = x if residual is None else x + residual
        return self.norm(total), total

    def kernel_args(self) -> tuple[Any, ...]:
        """``(weight, eps)``."""
        return self.weight, self.eps
