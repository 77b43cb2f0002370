"""A KV layout as data: the order of axes by name, from which any layer's layout follows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dougong.contracts import KVBuffer, KVCacheSpec, KVLayout, dtype_bytes
from dougong.describe.plain_data import nearest

Axis = int | str
"""Size of one axis of a block: a number, or a product of names and numbers that may be divided by a
number: ``"tokens"``, ``"heads"``, ``"dim"``, ``"dim_v"``, ``"2*dim"``, ``"dim/8"``."""

AXIS_NAMES = ("tokens", "heads", "dim", "dim_v")
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredBuffer:
    """One `KVBuffer` for layers of any size.

    Attributes:
        name: Of the buffer.
        block_shape: Axes of one block; ``"dim_v"`` is the size of a head of V.
        dtype: Of the elements; empty: the cache's.
        block_axis: As `KVBuffer.block_axis`.
        stride_order: As `KVBuffer.stride_order`.
    """

    name: str
    block_shape: tuple[Axis, ...]
    dtype: str = ""
    block_axis: int = 0
    stride_order: tuple[int, ...] | None = None

    def sized(self, spec: KVCacheSpec) -> KVBuffer:
        """For one kind of layer."""
        sizes = axis_sizes(spec)
        return KVBuffer(
            name=self.name,
            block_shape=tuple(_size(axis, sizes) for axis in self.block_shape),
            dtype=self.dtype or spec.dtype,
            block_axis=self.block_axis,
            stride_order=self.stride_order,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredLayout:
    """One `KVLayout` for layers of any size.

    Attributes:
        name: Two backends that share it, and buffers, may serve one layer.
        buffers: In the backend's order.
        dtypes: Of the cache it is for; empty: any.
        block_sizes: As `KVLayout.block_sizes`; empty: any that is asked for.
        alignment_bytes: As `KVLayout.alignment_bytes`.
        slot_dtype: As `KVLayout.slot_dtype`.
        reserved_blocks: As `KVLayout.reserved_blocks`.
    """

    name: str
    buffers: tuple[DeclaredBuffer, ...]
    dtypes: tuple[str, ...] = ()
    block_sizes: tuple[int, ...] = ()
    alignment_bytes: int = 1
    slot_dtype: str = "int64"
    reserved_blocks: int = 0

    def takes(self, dtype: str) -> bool:
        """Whether it is for a cache of this dtype."""
        return not self.dtypes or dtype in self.dtypes

    def sized(self, spec: KVCacheSpec) -> KVLayout:
        """For one kind of layer."""
        return KVLayout(
            name=self.name,
            buffers=tuple(one.sized(spec) for one in self.buffers),
            block_sizes=self.block_sizes or (spec.block_size,),
            alignment_bytes=self.alignment_bytes,
            slot_dtype=self.slot_dtype,
            reserved_blocks=self.reserved_blocks,
        )


def axis_sizes(spec: KVCacheSpec) -> dict[str, int]:
    """What the names of axes stand for in one kind of layer."""
    head_dim_v = spec.head_dim if spec.head_dim_v is None else spec.head_dim_v
    sizes = (spec.block_size, spec.num_kv_heads, spec.head_dim, head_dim_v)
    return dict(zip(AXIS_NAMES, sizes, strict=True))


def _size(axis: Axis, sizes: Mapping[str, int]) -> int:
    if isinstance(axis, int):
        return axis
    product, _, divisor = axis.partition("/")
    factors = (sizes[one] if one in sizes else int(one) for one in product.split("*"))
    return -(-math.prod(factors) // int(divisor or 1))


def layout_problems(layout: DeclaredLayout, place: str) -> Iterator[str]:
    """What a type cannot say of a layout that somebody wrote.

    Args:
        layout: As it was written.
        place: Where.
    """
    if not layout.name.strip():
        yield f"{place}.name is empty"
    if not layout.buffers:
        yield f"{place}.buffers is empty; it names at least one"
    if layout.slot_dtype not in ("int64", "int32"):
        yield f"{place}.slot_dtype is {layout.slot_dtype!r}; int64 or int32"
    if layout.alignment_bytes < 1:
        yield f"{place}.alignment_bytes is {layout.alignment_bytes}; it must be at least 1"
    if layout.reserved_blocks < 0:
        yield f"{place}.reserved_blocks is {layout.reserved_blocks}; it must be at least 0"
    for index, size in enumerate(layout.block_sizes):
        if size < 1:
            yield f"{place}.block_sizes[{index}] is {size}; it must be at least 1"
    for index, dtype in enumerate(layout.dtypes):
        yield from dtype_problems(dtype, f"{place}.dtypes[{index}]")
    for index, buffer in enumerate(layout.buffers):
        yield from _buffer_problems(buffer, f"{place}.buffers[{index}]")


def dtype_problems(dtype: str, place: str) -> Iterator[str]:
    """A dtype without a known size."""
    try:
        dtype_bytes(dtype)
    except ValueError as exc:
        yield f"{place}: {exc}"


def _buffer_problems(buffer: DeclaredBuffer, place: str) -> Iterator[str]:
    if buffer.dtype:
        yield from dtype_problems(buffer.dtype, f"{place}.dtype")
    if not buffer.block_shape:
        yield f"{place}.block_shape is empty"
    for index, axis in enumerate(buffer.block_shape):
        yield from _axis_problems(axis, f"{place}.block_shape[{index}]")
    axes = list(range(len(buffer.block_shape) + 1))
    if buffer.block_axis not in axes:
        yield f"{place}.block_axis is {buffer.block_axis}; there are {len(axes)} axes"
    if buffer.stride_order is not None and sorted(buffer.stride_order) != axes:
        yield f"{place}.stride_order is {list(buffer.stride_order)}; it must name {axes} once each"


def _axis_problems(axis: Axis, place: str) -> Iterator[str]:
    if isinstance(axis, int):
        if axis < 1:
            yield f"{place} is {axis}; it must be at least 1"
        return
    product, slash, divisor = axis.partition("/")
    if slash and not _NUMBER.fullmatch(divisor):
        yield f"{place} is {axis!r}; it can be divided by a number only"
    for factor in product.split("*"):
        if factor not in AXIS_NAMES and not _NUMBER.fullmatch(factor):
            yield f"{place} is {axis!r}: {factor!r} is unknown{nearest(factor, AXIS_NAMES)}"
