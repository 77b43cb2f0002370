"""How rows of numbers are stored in few bits.

Every format divides rows (the last axis) into groups of equal size and stores, per group, a scale
and the numbers in units of it. `QUANT_FORMATS` has them:

================== =================== ============== ========= ====================
name               group               values         scale     minimum
================== =================== ============== ========= ====================
int8_token         the whole row       int8           float32   none
int8_group32       32 elements         int8           float32   none
fp8_e4m3_token     the whole row       float8_e4m3fn  float32   none
fp8_e4m3_group128  128 elements        float8_e4m3fn  float32   none
fp8_e4m3_static    all rows            float8_e4m3fn  a weight  none
int4_group32       32 elements         uint8, packed  float16   float16
================== =================== ============== ========= ====================

``x ≈ values * scale``, with int4 ``x ≈ values * scale + minimum`` and values from 0 to 15, which is
the meaning of GGUF's Q4_1 (and int8_group32 is that of its Q8_0).

*Layout.* For ``x`` ``[..., hidden_size]``: values have its shape, scales and minimums
``[..., hidden_size / group]``. Four-bit values are ``[..., hidden_size / 2]`` bytes: byte ``j`` of
a group's 16 holds element ``j`` in its low half and element ``j + 16`` in its high half, as in
GGUF.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch

from dougong.contracts import ConfigError

INT4_MAX = 15
"""Largest value of four bits."""


@dataclass(frozen=True, slots=True)
class QuantFormat:
    """How rows are stored.

    Attributes:
        values: Dtype of the values; ``torch.uint8``: two values of four bits per byte.
        limit: Largest value, and size of the smallest.
        group_size: Elements that share a scale; ``None``: the whole row.
        is_static: One scale for all rows, from the checkpoint; otherwise taken from each group.
    """

    values: torch.dtype
    limit: float
    group_size: int | None = None
    is_static: bool = False

    @property
    def is_packed(self) -> bool:
        """Whether a byte holds two values and a group has a minimum."""
        return self.values is torch.uint8


_FP8 = torch.float8_e4m3fn

QUANT_FORMATS: Mapping[str, QuantFormat] = MappingProxyType(
    {
        "int8_token": QuantFormat(torch.int8, 127),
        "int8_group32": QuantFormat(torch.int8, 127, 32),
        "fp8_e4m3_token": QuantFormat(_FP8, torch.finfo(_FP8).max),
        "fp8_e4m3_group128": QuantFormat(_FP8, torch.finfo(_FP8).max, 128),
        "fp8_e4m3_static": QuantFormat(_FP8, torch.finfo(_FP8).max, is_static=True),
        "int4_group32": QuantFormat(torch.uint8, INT4_MAX, 32),
    }
)
"""Format by name, as ops' ``format`` property has it."""


def quant_format(hidden_size: int, format: str) -> QuantFormat:
    """A format by its name, if rows of this length can have it.

    Raises:
        ConfigError: It is unknown, or the row is not a whole number of groups.
    """
    if format not in QUANT_FORMATS:
        raise ConfigError(
            f"quantization format {format!r} is not known; known: {', '.join(QUANT_FORMATS)}"
        )
    layout = QUANT_FORMATS[format]
    if layout.group_size is not None and hidden_size % layout.group_size:
        raise ConfigError(
            f"rows of {hidden_size} elements are not a whole number of groups of "
            f"{layout.group_size}, which the format {format!r} has; choose one with a scale per row"
        )
    return layout
