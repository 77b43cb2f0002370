"""Numbers of few bits, and back. Formats and layouts: `dougong.ops.quant_formats`."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn

from dougong.ops.custom_op import CustomOp
from dougong.ops.example_values import seeded
from dougong.ops.quant_formats import INT4_MAX, quant_format


class _QuantOp(CustomOp):
    """What both directions know: the format, and how it divides a row."""

    property_names: ClassVar[tuple[str, ...]] = ("hidden_size", "format")

    def __init__(self, hidden_size: int, format: str) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.format = format
        self.layout = quant_format(hidden_size, format)
        group_size = self.layout.group_size or hidden_size
        self._groups = (hidden_size // group_size, group_size)


class Quantize(_QuantOp):
    """Store rows in few bits; `dougong.ops.quant_formats` has the formats and their layouts.

    No model of this version calls it.

    Call: ``(x)`` with ``x`` ``[..., hidden_size]``, any float dtype → ``(values, scale, minimum)``;
    ``minimum`` is ``None`` where the format has none. Computed in float32.

    * A scale is the largest size in the group divided by the format's largest value (127, 448), or
      (largest - smallest) / 15, rounded to the dtype it is stored in before it is used.
    * Rounding is to the nearest, half to even. What lies beyond the format's largest value becomes
      that value, infinity too, where the scale is static.
    * A group of zeros has scale 0 and values 0. So has one whose scale is too small to be stored.
    * A group with a number that is not finite has a scale or minimum that is not finite, so that
      `Dequantize` gives NaN, or infinity, for every element of it and never a number. With a static
      scale NaN stays NaN, alone.

    Args:
        hidden_size: Length of a row.
        format: A key of `QUANT_FORMATS`.

    Attributes:
        scale: float32 ``[1]``, above 0, filled from the checkpoint, of ``fp8_e4m3_static``; it is
            then the returned scale. ``None`` with other formats.

    Raises:
        ConfigError: The format is unknown, or the row is not a whole number of groups.
    """

    key: ClassVar[str] = "quantize"
    kernel_arg_names: ClassVar[tuple[str, ...]] = ("scale", "format")

    def __init__(self, hidden_size: int, format: str) -> None:
        super().__init__(hidden_size, format)
        self.scale = (
            nn.Parameter(torch.empty(1, dtype=torch.float32), requires_grad=False)
            if self.layout.is_static
            else None
        )

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three rows of two groups, one of zeros."""
        x = seeded(3, 64)
        x[1] = 0
        return cls(64, "int4_group32"), (x,)

    def forward_native(
        self, x: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Group by group, in float32."""
        groups = x.float().view(*x.shape[:-1], *self._groups)
        if self.layout.is_packed:
            return _quantize_packed(groups)
        limit = self.layout.limit
        scale = groups.abs().amax(dim=-1) / limit if self.scale is None else self.scale
        in_units = _in_units(groups, scale).clamp(-limit, limit)
        if self.layout.values is torch.int8:
            in_units = in_units.round().nan_to_num(nan=0.0)  # the scale tells
        return in_units.to(self.layout.values).flatten(-2), scale, None

    def kernel_args(self) -> tuple[Any, ...]:
        """``(scale, format)``."""
        return self.scale, self.format


class Dequantize(_QuantOp):
    """Numbers from what `Quantize` gave, or a checkpoint holds.

    No model of this version calls it.

    Call: ``(values, scale, minimum)``, laid out as `dougong.ops.quant_formats` says, a static scale
    ``[1]`` → ``[..., hidden_size]`` in ``dtype``. Computed in float32, rounded once.

    Args:
        hidden_size: Length of a row.
        format: A key of `QUANT_FORMATS`.
        dtype: Of the result.

    Raises:
        ConfigError: As `Quantize`.
    """

    key: ClassVar[str] = "dequantize"
    kernel_arg_names: ClassVar[tuple[str, ...]] = ("format", "dtype")

    def __init__(self, hidden_size: int, format: str, dtype: torch.dtype) -> None:
        super().__init__(hidden_size, format)
        self.dtype = dtype

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three packed rows of two groups."""
        values = (seeded(3, 32).abs() * 100).to(torch.uint8)
        scale, minimum = seeded(3, 2, seed=1).half(), seeded(3, 2, seed=2).half()
        return cls(64, "int4_group32", torch.float32), (values, scale, minimum)

    def forward_native(
        self, values: torch.Tensor, scale: torch.Tensor, minimum: torch.Tensor | None
    ) -> torch.Tensor:
        """A product, and a sum where there is a minimum."""
        num_groups, group_size = self._groups
        if self.layout.is_packed:
            packed = values.view(*values.shape[:-1], num_groups, group_size // 2)
            groups = torch.cat((packed & 15, packed >> 4), dim=-1).float()
        else:
            groups = values.float().view(*values.shape[:-1], num_groups, group_size)
        wide = groups * scale.float().unsqueeze(-1)
        if minimum is not None:
            wide = wide + minimum.float().unsqueeze(-1)
        return wide.flatten(-2).to(self.dtype)

    def kernel_args(self) -> tuple[Any, ...]:
        """``(format, dtype)``."""
        return self.format, self.dtype


def _in_units(groups: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Divided by the scale; a scale of 0 is that of a group with nothing to tell apart."""
    return groups / torch.where(scale == 0, torch.inf, scale).unsqueeze(-1)


def _quantize_packed(groups: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    low, high = groups.amin(dim=-1), groups.amax(dim=-1)
    scale, minimum = ((high - low) / INT4_MAX).half(), low.half()
    in_units = _in_units(groups - minimum.float().unsqueeze(-1), scale.float())
    codes = in_units.round().clamp(0, INT4_MAX).nan_to_num(nan=0.0).to(torch.uint8)
    first, second = codes.chunk(2, dim=-1)
    return (first | second << 4).flatten(-2), scale, minimum
