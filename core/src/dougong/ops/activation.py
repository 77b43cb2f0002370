"""Gated activations: one half of the last axis gates the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from dougong.contracts import ConfigError
from dougong.ops.custom_op import CustomOp
from dougong.ops.example_values import seeded


class SiluAndMul(CustomOp):
    """``silu(x[..., :d]) * x[..., d:]`` (Shazeer 2020, arXiv:2002.05202).

    Call: ``(x)`` with ``x`` ``[num_tokens, 2 * d]`` → ``[num_tokens, d]``.
    """

    key: ClassVar[str] = "silu_and_mul"

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three rows."""
        return cls(), (seeded(3, 24),)

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
    property_names: ClassVar[tuple[str, ...]] = ("approximate",)
    kernel_arg_names: ClassVar[tuple[str, ...]] = ("approximate",)

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three rows."""
        return cls("tanh"), (seeded(3, 24),)

    def forward_native(self, x: torch.Tensor) -> torch.Tensor:
        """Each factor is rounded to the storage dtype."""
        gate, up = x.chunk(2, dim=-1)
        return F.gelu(gate, approximate=self.approximate) * up

    def kernel_args(self) -> tuple[Any, ...]:
        """``(approximate,)``."""
        return (self.approximate,)


_GATED: dict[str, Callable[[], CustomOp]] = {
    "silu": SiluAndMul,
    "gelu": GeluAndMul,
    "gelu_pytorch_tanh": lambda: GeluAndMul("tanh"),
}


def gated_activation(name: str) -> CustomOp:
    """The op for an activation by the name a checkpoint gives it.

    Raises:
        ConfigError: The name is unknown.
    """
    if name not in _GATED:
        raise ConfigError(f"hidden_act={name!r} is not known; known: {', '.join(_GATED)}")
    return _GATED[name]()
