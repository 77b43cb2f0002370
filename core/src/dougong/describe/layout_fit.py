"""From a backend's layouts for some layers to one that says it for all, where data can."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import TypeVar

from dougong.contracts import KVBuffer, KVCacheSpec, KVLayout
from dougong.describe.declared_layout import (
    AXIS_NAMES,
    Axis,
    DeclaredBuffer,
    DeclaredLayout,
    axis_sizes,
)

T = TypeVar("T")
Examples = Sequence[tuple[KVCacheSpec, KVLayout]]


def fit_layout(examples: Examples) -> DeclaredLayout | None:
    """The layout that all examples are instances of; ``None``: data cannot say it.

    Args:
        examples: Layers of one cache dtype with a backend's layouts for them; sizes that do not
            differ among them are taken to be fixed.
    """
    first_spec, first = examples[0]
    buffers = [_fit_buffer(examples, index) for index in range(len(first.buffers))]
    block_sizes = _same([layout.block_sizes for _, layout in examples])
    if all(layout.block_sizes == (spec.block_size,) for spec, layout in examples):
        block_sizes = () if len({spec.block_size for spec, _ in examples}) > 1 else block_sizes
    found = [one for one in buffers if one is not None]
    if block_sizes is None or len(found) < len(buffers):
        return None
    fitted = DeclaredLayout(
        name=first.name,
        buffers=tuple(found),
        dtypes=(first_spec.dtype,),
        block_sizes=block_sizes,
        alignment_bytes=first.alignment_bytes,
        slot_dtype=first.slot_dtype,
        reserved_blocks=first.reserved_blocks,
    )
    return fitted if all(fitted.sized(spec) == layout for spec, layout in examples) else None


def _fit_buffer(examples: Examples, index: int) -> DeclaredBuffer | None:
    buffers = [
        (spec, layout.buffers[index]) for spec, layout in examples if index < len(layout.buffers)
    ]
    first_spec, first = buffers[0]
    if _same([len(buffer.block_shape) for _, buffer in buffers]) is None:
        return None
    axes = [_fit_axis(buffers, axis) for axis in range(len(first.block_shape))]
    found = [one for one in axes if one is not None]
    if len(found) < len(axes):
        return None
    return DeclaredBuffer(
        name=first.name,
        block_shape=tuple(found),
        dtype="" if first.dtype == first_spec.dtype else first.dtype,
        block_axis=first.block_axis,
        stride_order=first.stride_order,
    )


def _fit_axis(buffers: Sequence[tuple[KVCacheSpec, KVBuffer]], axis: int) -> Axis | None:
    """The product of fewest names that has one ratio to the axis in every example."""
    sizes = [axis_sizes(spec) for spec, _ in buffers]
    values = [buffer.block_shape[axis] for _, buffer in buffers]
    if not all(isinstance(one, int) and one > 0 for one in values):
        return None
    for count in range(len(AXIS_NAMES) + 1):
        for names in combinations(AXIS_NAMES, count):
            products = [math.prod(one[name] for name in names) for one in sizes]
            ratio = _same([Fraction(*pair) for pair in zip(values, products, strict=True)])
            if ratio is not None:
                return _axis(names, ratio)
    return None


def _axis(names: Sequence[str], ratio: Fraction) -> Axis:
    if not names:
        return int(ratio)
    factors = names if ratio.numerator == 1 else (str(ratio.numerator), *names)
    divisor = "" if ratio.denominator == 1 else f"/{ratio.denominator}"
    return "*".join(factors) + divisor


def _same(values: Sequence[T]) -> T | None:
    """The one value; ``None``: they differ."""
    return values[0] if all(one == values[0] for one in values) else None
