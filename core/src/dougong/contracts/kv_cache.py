"""Shape of the KV cache: what a layer needs, how a backend lays it out, how blocks are grouped."""

from __future__ import annotations

import math
from dataclasses import dataclass

_DTYPE_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "int8": 1, "uint8": 1,
}  # fmt: skip


def dtype_bytes(dtype: str) -> int:
    """Bytes of one element of a dtype named as torch names it.

    Raises:
        ValueError: The name is unknown; the message lists the known ones.
    """
    try:
        return _DTYPE_BYTES[dtype]
    except KeyError:
        raise ValueError(f"unknown dtype {dtype!r}; known: {', '.join(_DTYPE_BYTES)}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCacheSpec:
    """What one attention layer stores per token.

    Attributes:
        num_kv_heads: On this rank.
        head_dim: Elements per head of K; V has ``head_dim_v``.
        head_dim_v: ``None``: as ``head_dim``.
        dtype: Of the stored elements.
        block_size: Tokens per block.
        sliding_window: Tokens a query sees, itself included; ``None``: all.
    """

    num_kv_heads: int
    head_dim: int
    dtype: str
    block_size: int
    head_dim_v: int | None = None
    sliding_window: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KVBuffer:
    """One device tensor of a layer's KV cache.

    Attributes:
        name: ``"k"``, ``"v"``, or the backend's own.
        block_shape: Shape of one block, without the block axis.
        dtype: Of the elements.
        block_axis: Where the axis of blocks stands in the full shape.
        stride_order: Axes of the full shape, outermost in memory first; ``None``: contiguous.
    """

    name: str
    block_shape: tuple[int, ...]
    dtype: str
    block_axis: int = 0
    stride_order: tuple[int, ...] | None = None

    def shape(self, num_blocks: int) -> tuple[int, ...]:
        """Full shape with ``num_blocks`` blocks."""
        axis = self.block_axis
        return (*self.block_shape[:axis], num_blocks, *self.block_shape[axis:])

    @property
    def block_bytes(self) -> int:
        """Bytes of one block, before alignment."""
        return math.prod(self.block_shape) * dtype_bytes(self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class KVLayout:
    """How a backend stores one layer's KV cache.

    Attributes:
        name: Two backends that share a layout name and buffers may serve one layer.
        buffers: In the order `AttentionImpl` receives them.
        block_sizes: Tokens per block it accepts, preferred first.
        alignment_bytes: Every block starts at a multiple of this.
        slot_dtype: Dtype of ``slot_mapping``.
        reserved_blocks: Blocks the backend keeps for itself (from block 0 on); never scheduled.
    """

    name: str
    buffers: tuple[KVBuffer, ...]
    block_sizes: tuple[int, ...]
    alignment_bytes: int = 1
    slot_dtype: str = "int64"
    reserved_blocks: int = 0

    @property
    def block_bytes(self) -> int:
        """Bytes of one block of one layer, alignment included."""
        align = self.alignment_bytes
        return sum(-(-buffer.block_bytes // align) * align for buffer in self.buffers)


@dataclass(frozen=True, slots=True)
class KVCacheGroup:
    """Layers that share one block table.

    Attributes:
        spec: The same for every layer of the group.
        layer_indices: Attention layers, counted from 0.
    """

    spec: KVCacheSpec
    layer_indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KVCacheConfig:
    """The KV cache of one rank.

    Attributes:
        num_blocks: Blocks per buffer, reserved ones included.
        groups: In the order of block tables everywhere else.
    """

    num_blocks: int
    groups: tuple[KVCacheGroup, ...]
