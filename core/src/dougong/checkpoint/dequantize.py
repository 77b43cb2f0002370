"""Turning stored blocks of a GGUF tensor into floats.

Common types have a torch version here, written over whole chunks; it equals the gguf library's
bit for bit (a test compares them) and is several times as fast. All other types that the
library knows go through the library.
Layouts: ``ggml-common.h`` of ggml; d is a block's scale, m its minimum, q a stored integer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch

_FLOATS: Mapping[str, torch.dtype] = MappingProxyType(
    {
        "F64": torch.float64,
        "F32": torch.float32,
        "F16": torch.float16,
        "BF16": torch.bfloat16,
    }
)


@functools.cache
def is_readable(storage_format: str) -> bool:
    """Whether `dequantize_into` knows the format."""
    if storage_format in _FLOATS or storage_format in _BLOCKS:
        return True
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    num_block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[storage_format]][1]
    try:
        _by_library(torch.zeros(num_block_bytes, dtype=torch.uint8), storage_format)
    except NotImplementedError:
        return False
    return True


def readable_formats() -> tuple[str, ...]:
    """Every quantized format that `dequantize_into` knows."""
    from gguf.constants import GGMLQuantizationType

    names = (one.name for one in GGMLQuantizationType)
    return tuple(name for name in names if name not in _FLOATS and is_readable(name))


def dequantize_into(raw: torch.Tensor, storage_format: str, out: torch.Tensor) -> None:
    """Convert whole blocks.

    Args:
        raw: uint8, 1-D: the bytes of whole blocks.
        storage_format: GGUF type name.
        out: 1-D, contiguous, any float dtype, as long as the blocks have values. Values are
            computed in float32 and rounded once.
    """
    if (dtype := _FLOATS.get(storage_format)) is not None:
        out.copy_(raw.view(dtype))
    elif storage_format in _BLOCKS:
        num_block_bytes, convert = _BLOCKS[storage_format]
        values = convert(raw.view(-1, num_block_bytes))
        out.view(values.shape).copy_(values)
    else:
        out.copy_(_by_library(raw, storage_format))


def _by_library(raw: torch.Tensor, storage_format: str) -> torch.Tensor:
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    values = dequantize(raw.numpy(), GGMLQuantizationType[storage_format])
    return torch.from_numpy(values).view(-1)


def _half(blocks: torch.Tensor, start: int) -> torch.Tensor:
    """The float16 at byte ``start`` of each block, as float32 ``[num_blocks, 1]``."""
    return blocks[:, start : start + 2].contiguous().view(torch.float16).float()


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    """``[..., n]`` bytes to ``[..., 2, n]``: all low halves, then all high halves."""
    return torch.stack((packed & 15, packed >> 4), dim=-2)


def _high_bits(blocks: torch.Tensor, start: int) -> torch.Tensor:
    """32 bits from byte ``start`` of each block, as 0 or 16: ``[num_blocks, 2, 16]``."""
    shifts = torch.arange(8, dtype=torch.uint8)
    bits = (blocks[:, start : start + 4, None] >> shifts) & 1
    return (bits << 4).view(-1, 2, 16)


def _q4_0(blocks: torch.Tensor) -> torch.Tensor:
    values = _nibbles(blocks[:, 2:]).float().sub_(8)
    return values.mul_(_half(blocks, 0)[:, :, None])


def _q4_1(blocks: torch.Tensor) -> torch.Tensor:
    values = _nibbles(blocks[:, 4:]).float()
    return values.mul_(_half(blocks, 0)[:, :, None]).add_(_half(blocks, 2)[:, :, None])


def _q5_0(blocks: torch.Tensor) -> torch.Tensor:
    values = (_nibbles(blocks[:, 6:]) | _high_bits(blocks, 2)).float().sub_(16)
    return values.mul_(_half(blocks, 0)[:, :, None])


def _q5_1(blocks: torch.Tensor) -> torch.Tensor:
    values = (_nibbles(blocks[:, 8:]) | _high_bits(blocks, 4)).float()
    return values.mul_(_half(blocks, 0)[:, :, None]).add_(_half(blocks, 2)[:, :, None])


def _q8_0(blocks: torch.Tensor) -> torch.Tensor:
    return blocks[:, 2:].view(torch.int8).float().mul_(_half(blocks, 0))


def _scales_and_minima(packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """12 bytes to eight 6-bit scales and eight 6-bit minima, float32 ``[num_blocks, 8]``."""
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = torch.cat((first & 63, (third & 15) | (first >> 6 << 4)), dim=1)
    minima = torch.cat((second & 63, (third >> 4) | (second >> 6 << 4)), dim=1)
    return scales.float(), minima.float()


def _scaled_k(blocks: torch.Tensor, quants: torch.Tensor) -> torch.Tensor:
    """``d * scale * q - dmin * minimum`` for uint8 ``[num_blocks, 8, 32]`` quants."""
    scales, minima = _scales_and_minima(blocks[:, 4:16])
    scales.mul_(_half(blocks, 0))
    minima.mul_(_half(blocks, 2))
    return quants.float().mul_(scales[:, :, None]).sub_(minima[:, :, None])


def _q4_k(blocks: torch.Tensor) -> torch.Tensor:
    return _scaled_k(blocks, _nibbles(blocks[:, 16:].reshape(-1, 4, 32)).view(-1, 8, 32))


def _q5_k(blocks: torch.Tensor) -> torch.Tensor:
    low = _nibbles(blocks[:, 48:].reshape(-1, 4, 32)).view(-1, 8, 32)
    shifts = torch.arange(8, dtype=torch.uint8)[:, None]
    high = ((blocks[:, None, 16:48] >> shifts) & 1) << 4
    return _scaled_k(blocks, low | high)


def _q6_k(blocks: torch.Tensor) -> torch.Tensor:
    low = _nibbles(blocks[:, :128].reshape(-1, 2, 64)).view(-1, 2, 4, 32)
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8)[:, None]
    high = ((blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts) & 3) << 4
    values = (low | high).float().sub_(32).view(-1, 16, 16)
    scales = blocks[:, 192:208].view(torch.int8).float().mul_(_half(blocks, 208))
    return values.mul_(scales[:, :, None])


_BLOCKS: Mapping[str, tuple[int, Callable[[torch.Tensor], torch.Tensor]]] = MappingProxyType(
    {
        "Q4_0": (18, _q4_0),
        "Q4_1": (20, _q4_1),
        "Q5_0": (22, _q5_0),
        "Q5_1": (24, _q5_1),
        "Q8_0": (34, _q8_0),
        "Q4_K": (144, _q4_k),
        "Q5_K": (176, _q5_k),
        "Q6_K": (210, _q6_k),
    }
)
