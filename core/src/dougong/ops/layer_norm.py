"""Layer normalisation (Ba, Kiros and Hinton 2016, arXiv:1607.06450)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn

from dougong.ops.custom_op import CustomOp
from dougong.ops.example_values import filled, seeded


class LayerNorm(CustomOp):
    """``(x - mean(x)) / sqrt(var(x) + eps) * weight + bias`` over the last axis, in float32.

    The variance is the mean square of what remains without the mean, divided by the length of the
    axis.

    Call: ``(x)`` with ``x`` ``[..., hidden_size]`` → same shape and dtype.

    Args:
        hidden_size: Length of the last axis.
        eps: Added to the variance.
        dtype: Of the weight ``[hidden_size]``, and of the bias.
        has_bias: Whether ``bias`` ``[hidden_size]`` exists.
    """

    key: ClassVar[str] = "layer_norm"
    property_names: ClassVar[tuple[str, ...]] = ("hidden_size", "has_bias")
    kernel_arg_names: ClassVar[tuple[str, ...]] = ("weight", "bias", "eps")

    def __init__(
        self, hidden_size: int, eps: float, dtype: torch.dtype, has_bias: bool = True
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.eps = eps
        self.has_bias = has_bias
        self.weight = nn.Parameter(torch.empty(hidden_size, dtype=dtype), requires_grad=False)
        self.bias = (
            nn.Parameter(torch.empty(hidden_size, dtype=dtype), requires_grad=False)
            if has_bias
            else None
        )

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three rows."""
        return filled(cls(24, 1e-5, torch.float32)), (seeded(3, 24),)

    def forward_native(self, x: torch.Tensor) -> torch.Tensor:
        """All of it in float32, rounded once to the storage dtype."""
        wide = x.float()
        centred = wide - wide.mean(dim=-1, keepdim=True)
        scale = torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + self.eps)
        normed = centred * scale * self.weight.float()
        if self.bias is not None:
            normed = normed + self.bias.float()
        return normed.to(x.dtype)

    def kernel_args(self) -> tuple[Any, ...]:
        """``(weight, bias, eps)``."""
        return self.weight, self.bias, self.eps
