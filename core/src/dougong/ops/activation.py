"""Gated activations: one half of the last axis gates the other."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from dougong.ops.custom_op import CustomOp


class SiluAndMul(CustomOp):
    """``silu(x[..., :d]) * x[..., d:]`` (Shazeer 2020, arXiv:2002.05202).

    Call: ``(x)`` with ``x`` ``[num_tokens, 2 * d]`` → ``[num_tokens, d]``.
    """

    key: ClassVar[str] = "silu_and_mul"

    def forward_native(self, x: torch.Tensor) -> torch.Tensor:
        """Each factor is rounded to the storage dtype."""
        gate, up = x.chunk(2, dim=-1)
        return F.silu(gate) * up


class GeluAndMul(CustomOp):
    """``gelu(x[..., :d]) * x[..., d:]``.

    Call: as `SiluAndMul`.

    Args:
        approximate: ``"tanh"`` or ``"none"`` (the error function).
    """

    key: ClassVar[str] = "gelu_and_mul"

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward_native(self, x: torch.Tensor) -> torch.Tensor:
        """Each factor is rounded to the storage dtype."""
        gate, up = x.chunk(2, dim=-1)
        return F.gelu(gate, approximate=self.approximate) * up

    def kernel_args(self) -> tuple[Any, ...]:
        """``(approximate,)``."""
        return (self.approximate,)
