"""Matrix products with a weight, alone and fused with the gated activation that follows."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from dougong.ops.activation import gated_activation
from dougong.ops.custom_op import CustomOp
from dougong.ops.example_values import filled, seeded
from dougong.ops.stored_weight import STORED_FORMATS, empty_stored, plain_rows
from dougong.ops.weight_format import format_of


class Linear(CustomOp):
    """``x @ weight.T + bias``.

    Call: ``(x)`` with ``x`` ``[num_tokens, in_features]`` → ``[num_tokens, out_features]``.

    Args:
        in_features: Columns of ``weight``.
        out_features: Rows of ``weight``.
        has_bias: Whether ``bias`` ``[out_features]`` exists.
        dtype: Of both.
    """

    key: ClassVar[str] = "linear"
    property_names: ClassVar[tuple[str, ...]] = (
        "in_features",
        "out_features",
        "has_bias",
        "weight_format",
    )
    kernel_arg_names: ClassVar[tuple[str, ...]] = ("weight", "bias")

    def __init__(
        self, in_features: int, out_features: int, has_bias: bool, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.dtype = dtype
        self.in_features = in_features
        self.out_features = out_features
        self.has_bias = has_bias
        self.weight_format = format_of(dtype)
        self.weight = nn.Parameter(
            torch.empty(out_features, in_features, dtype=dtype), requires_grad=False
        )
        self.bias = (
            nn.Parameter(torch.empty(out_features, dtype=dtype), requires_grad=False)
            if has_bias
            else None
        )

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three rows, with a bias."""
        return filled(cls(24, 16, True, torch.float32)), (seeded(3, 24),)

    def store_as(self, weight_format: str) -> None:
        """Hold the weight as its file stores it; before it is filled.

        Args:
            weight_format: Of `STORED_FORMATS`.

        Raises:
            ConfigError: Rows are no whole number of blocks.
        """
        self.weight = empty_stored(self.weight, weight_format)
        self.weight_format = weight_format

    def forward_native(self, x: torch.Tensor) -> torch.Tensor:
        """As torch computes it; of a stored weight the numbers are made anew in each call."""
        if self.weight_format in STORED_FORMATS:
            return F.linear(x, plain_rows(self.weight, self.weight_format, x.dtype), self.bias)
        return F.linear(x, self.weight, self.bias)

    def kernel_args(self) -> tuple[Any, ...]:
        """``(weight, bias)``."""
        return self.weight, self.bias


class GateUpAct(CustomOp):
    """Fused slot: gate and up projections and the gated activation, ``act(x @ G.T) * (x @ U.T)``.

    Call: ``(x)`` with ``x`` ``[num_tokens, hidden_size]`` → ``[num_tokens, intermediate_size]``.
    ``weight`` is ``[2 * intermediate_size, hidden_size]``, gate rows first.

    Its parts are ops of their own, ``linear``, which holds weight and bias, and ``act``: what is
    bound to them runs where this slot is native.

    Args:
        hidden_size: Columns of ``weight``.
        intermediate_size: Half its rows.
        activation: The checkpoint's name: ``"silu"``, ``"gelu"`` or ``"gelu_pytorch_tanh"``.
        has_bias: Whether there is a bias on both projections.
        dtype: Of weight and bias.

    Raises:
        ConfigError: The activation is unknown.
    """

    key: ClassVar[str] = "gate_up_act"
    property_names: ClassVar[tuple[str, ...]] = (
        "hidden_size",
        "intermediate_size",
        "activation",
        "has_bias",
        "weight_format",
    )
    kernel_arg_names: ClassVar[tuple[str, ...]] = ("weight", "bias", "activation")

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        activation: str,
        has_bias: bool,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.dtype = dtype
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.activation = activation
        self.has_bias = has_bias
        self.weight_format = format_of(dtype)
        self.linear = Linear(hidden_size, 2 * intermediate_size, has_bias, dtype)
        self.act = gated_activation(activation)

    def store_as(self, weight_format: str) -> None:
        """See `Linear.store_as`."""
        self.linear.store_as(weight_format)
        self.weight_format = weight_format

    @property
    def weight(self) -> torch.Tensor:
        """The projections', ``[2 * intermediate_size, hidden_size]``."""
        return self.linear.weight

    @property
    def bias(self) -> torch.Tensor | None:
        """The projections', ``[2 * intermediate_size]``; ``None``: they have none."""
        return self.linear.bias

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three rows, with a bias."""
        return filled(cls(24, 16, "silu", True, torch.float32)), (seeded(3, 24),)

    def forward_native(self, x: torch.Tensor) -> torch.Tensor:
        """The product in the storage dtype, then the activation."""
        return self.act(self.linear(x))  # type: ignore[no-any-return]  # an op gives Any

    def kernel_args(self) -> tuple[Any, ...]:
        """``(weight, bias, activation)``."""
        return self.weight, self.bias, self.activation
