"""Numbers of few bits: what a scale must be, and which codes are nearest."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dougong_conformance.kit.metric import F64, Expected

FP8_MAX = 448.0
INT8_MAX = 127.0
INT4_MAX = 15.0


@dataclass(frozen=True, slots=True)
class Format:
    """A format as the specification has it; written anew here, not read from the core.

    Attributes:
        values: Dtype of the stored values.
        limit: Largest value.
        group_size: Elements that share a scale; 0: the whole row.
        is_static: The scale is a weight.
        is_packed: Two values of four bits per byte, and a minimum per group.
    """

    values: torch.dtype
    limit: float
    group_size: int = 0
    is_static: bool = False
    is_packed: bool = False

    def groups(self, x: torch.Tensor) -> torch.Tensor:
        """``[..., num_groups, group_size]``."""
        size = self.group_size or x.shape[-1]
        return x.reshape(*x.shape[:-1], x.shape[-1] // size, size)


FORMATS = {
    "int8_token": Format(torch.int8, INT8_MAX),
    "int8_group32": Format(torch.int8, INT8_MAX, 32),
    "fp8_e4m3_token": Format(torch.float8_e4m3fn, FP8_MAX),
    "fp8_e4m3_group128": Format(torch.float8_e4m3fn, FP8_MAX, 128),
    "fp8_e4m3_static": Format(torch.float8_e4m3fn, FP8_MAX, is_static=True),
    "int4_group32": Format(torch.uint8, INT4_MAX, 32, is_packed=True),
}


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """What a row must be stored as.

    Attributes:
        scale: Per group; ``None`` where it is static.
        minimum: Per group, exactly; ``None``: the format has none.
        in_units: float64, of the shape of the input: exact values in units of the right scale.
        spread: float64, of the same shape: how far a correct scale may move a value, in units.
    """

    scale: Expected | None
    minimum: torch.Tensor | None
    in_units: torch.Tensor
    spread: torch.Tensor


def quantize(x: torch.Tensor, format: str, static_scale: float = 1.0) -> Quantized:
    """Finite rows as they must be stored."""
    layout = FORMATS[format]
    groups = layout.groups(x.to(F64))
    if layout.is_packed:
        low, high = groups.amin(dim=-1), groups.amax(dim=-1)
        scale = (high - low) / layout.limit
        minimum = low.to(torch.float16)
        stored = scale.to(torch.float16).to(F64)
        units = _in_units(groups - minimum.to(F64).unsqueeze(-1), stored)
        size = ((high.abs() + low.abs()) / layout.limit).contiguous()
        expected = Expected(scale, size, torch.zeros_like(scale), 1, torch.float16)
        spread = units.abs() * 2.0**-10 + 2.0**-12
        return Quantized(expected, minimum, units.flatten(-2), spread.flatten(-2))
    if layout.is_static:
        units = groups / static_scale
        return Quantized(None, None, units.flatten(-2), (units.abs() * 2.0**-22).flatten(-2))
    scale = groups.abs().amax(dim=-1) / layout.limit
    units = _in_units(groups, scale)
    # The reciprocal of the largest value may be what is multiplied with, rounded.
    expected = Expected(scale, torch.zeros_like(scale), scale, 1, torch.float32)
    return Quantized(expected, None, units.flatten(-2), (units.abs() * 2.0**-21).flatten(-2))


def half_step(in_units: torch.Tensor, format: str) -> torch.Tensor:
    """Largest distance of the nearest storable number."""
    layout = FORMATS[format]
    if layout.values is not torch.float8_e4m3fn:
        return torch.full_like(in_units, 0.5)
    exponent = in_units.abs().clamp(min=2.0**-6).log2().floor()
    return torch.exp2(exponent - 4)


def unpack_int4(packed: torch.Tensor) -> torch.Tensor:
    """Bytes of groups of 32 as numbers from 0 to 15, in order."""
    groups = packed.reshape(*packed.shape[:-1], -1, 16)
    return torch.cat((groups & 15, groups >> 4), dim=-1).flatten(-2)


def pack_int4(codes: torch.Tensor) -> torch.Tensor:
    """The other way."""
    groups = codes.reshape(*codes.shape[:-1], -1, 32)
    low, high = groups[..., :16], groups[..., 16:]
    return (low | (high << 4)).flatten(-2)


def dequantize(
    values: torch.Tensor,
    scale: torch.Tensor,
    minimum: torch.Tensor | None,
    format: str,
    dtype: torch.dtype,
) -> Expected:
    """Numbers again, rounded once."""
    layout = FORMATS[format]
    numbers = unpack_int4(values) if layout.is_packed else values
    groups = layout.groups(numbers.to(torch.float32).to(F64))
    product = groups * scale.to(F64).unsqueeze(-1)
    condition = product.abs()
    if minimum is not None:
        offset = minimum.to(F64).unsqueeze(-1)
        product, condition = product + offset, condition + offset.abs()
    value = product.flatten(-2)
    return Expected(value, condition.flatten(-2), torch.zeros_like(value), 2, dtype)


def _in_units(groups: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return groups / torch.where(scale == 0, torch.inf, scale).unsqueeze(-1)
