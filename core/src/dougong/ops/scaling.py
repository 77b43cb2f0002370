"""Products with a constant, and caps: what some families do to whole activations.

Neither is in the catalogue: one elementwise pass each, which nobody has asked to replace. A plan
names them all the same, and they run natively everywhere.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from dougong.ops.custom_op import CustomOp
from dougong.ops.example_values import seeded


class Scale(CustomOp):
    """``x * factor``.

    Call: ``(x)`` of any shape → same shape and dtype.

    Args:
        factor: A constant of the model.
    """

    key: ClassVar[str] = "scale"
    property_names: ClassVar[tuple[str, ...]] = ("factor",)
    kernel_arg_names: ClassVar[tuple[str, ...]] = ("factor",)

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three rows."""
        return cls(2.5), (seeded(3, 24),)

    def forward_native(self, x: torch.Tensor) -> torch.Tensor:
        """The product is rounded once."""
        return x * self.factor

    def kernel_args(self) -> tuple[Any, ...]:
        """``(factor,)``."""
        return (self.factor,)


class SoftCap(CustomOp):
    """``cap * tanh(x / cap)``: nearly ``x`` where it is small, never beyond ``cap``.

    Call: ``(x)`` of any shape → same shape and dtype.

    Args:
        cap: Above 0.
    """

    key: ClassVar[str] = "soft_cap"
    property_names: ClassVar[tuple[str, ...]] = ("cap",)
    kernel_arg_names: ClassVar[tuple[str, ...]] = ("cap",)

    def __init__(self, cap: float) -> None:
        super().__init__()
        self.cap = cap

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three rows."""
        return cls(1.5), (seeded(3, 24),)

    def forward_native(self, x: torch.Tensor) -> torch.Tensor:
        """In the dtype of ``x``."""
        return torch.tanh(x / self.cap) * self.cap

    def kernel_args(self) -> tuple[Any, ...]:
        """``(cap,)``."""
        return (self.cap,)


def rounded(number: float, dtype: torch.dtype) -> float:
    """A constant as a model holds it that keeps its constants in its own dtype."""
    return float(torch.tensor(number, dtype=dtype, device="cpu"))
