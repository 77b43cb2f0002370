"""The activation of encoders (Hendrycks and Gimpel 2016, arXiv:1606.08415).

It is not in the catalogue: one elementwise pass, which nobody has asked to replace. A plan names it
all the same, and it runs natively everywhere.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from dougong.contracts import ConfigError
from dougong.ops.custom_op import CustomOp
from dougong.ops.example_values import seeded

_APPROXIMATIONS = {
    "gelu": "none",
    "gelu_python": "none",
    "gelu_new": "tanh",
    "gelu_fast": "tanh",
    "gelu_pytorch_tanh": "tanh",
}


class Gelu(CustomOp):
    """``gelu(x)``.

    Call: ``(x)`` of any shape → same shape and dtype.

    Args:
        activation: The checkpoint's name of it.

    Raises:
        ConfigError: The name is unknown.
    """

    key: ClassVar[str] = "gelu"
    property_names: ClassVar[tuple[str, ...]] = ("approximate",)
    kernel_arg_names: ClassVar[tuple[str, ...]] = ("approximate",)

    def __init__(self, activation: str = "gelu") -> None:
        super().__init__()
        if activation not in _APPROXIMATIONS:
            known = ", ".join(_APPROXIMATIONS)
            raise ConfigError(f"hidden_act={activation!r} is not known; known: {known}")
        self.approximate = _APPROXIMATIONS[activation]

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three rows."""
        return cls(), (seeded(3, 24),)

    def forward_native(self, x: torch.Tensor) -> torch.Tensor:
        """Rounded once."""
        return F.gelu(x, approximate=self.approximate)

    def kernel_args(self) -> tuple[Any, ...]:
        """``(approximate,)``."""
        return (self.approximate,)
