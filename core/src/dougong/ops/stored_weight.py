"""Weights that stay as their file stores them, until a kernel reads them so.

A row of 32-element blocks is a row of bytes: ``uint8 [rows, columns / 32 * bytes of a block]``, in
the layout of ggml's ``block_q4_0``, ``block_q4_1`` and ``block_q8_0``. Only kernels that name the
format among the conditions of ``weight_format`` are handed such a weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import nn

from dougong.checkpoint.dequantize import dequantize_into
from dougong.contracts import ConfigError

BLOCK = 32
"""Elements that share a scale."""

STORED_FORMATS: Mapping[str, int] = MappingProxyType({"q4_0": 18, "q4_1": 20, "q8_0": 34})
"""Format, as ``weight_format`` has it → bytes of a block."""


def stored_row_bytes(weight_format: str, columns: int) -> int:
    """Bytes of a row.

    Raises:
        ConfigError: The format is unknown, or a row is no whole number of blocks.
    """
    if weight_format not in STORED_FORMATS or columns % BLOCK:
        raise ConfigError(
            f"rows of {columns} cannot stay in {weight_format!r}; rows of whole blocks of {BLOCK} "
            f"can, in {', '.join(STORED_FORMATS)}"
        )
    return columns // BLOCK * STORED_FORMATS[weight_format]


def empty_stored(weight: torch.Tensor, weight_format: str) -> nn.Parameter:
    """An unfilled weight of that format in the place of a plain one, on the same device."""
    shape = (weight.shape[0], stored_row_bytes(weight_format, weight.shape[1]))
    empty = torch.empty(shape, dtype=torch.uint8, device=weight.device)
    return nn.Parameter(empty, requires_grad=False)


def plain_rows(stored: torch.Tensor, weight_format: str, dtype: torch.dtype) -> torch.Tensor:
    """Rows as numbers: computed in float32 and rounded once.

    Args:
        stored: uint8 ``[rows, bytes]``.
        weight_format: Of `STORED_FORMATS`.
        dtype: Of the result ``[rows, columns]``.
    """
    num_rows, num_bytes = stored.shape
    columns = num_bytes // STORED_FORMATS[weight_format] * BLOCK
    out = torch.empty(num_rows * columns, dtype=dtype, device=stored.device)
    dequantize_into(stored.reshape(-1), weight_format.upper(), out)
    return out.view(num_rows, columns)
