"""Triton's language under names that a type checker accepts, and the arithmetic kernels share.

Which triton this is (a vendor may ship a build of its own under the same import name), and whether
kernels are compiled or interpreted (``TRITON_INTERPRET=1``), is settled when this is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

tl: Any = import_module("triton.language")
jit: Callable[[Callable[..., Any]], Any] = import_module("triton").jit

# Compilers look annotations up among a kernel's globals, and take there what is triton's own alone.
if TYPE_CHECKING:
    constexpr: TypeAlias = Any
    tensor: TypeAlias = Any
else:
    constexpr = tl.constexpr
    tensor = tl.tensor


@jit
def tanh(x: tensor) -> tensor:
    """``tanh`` in float32 from ``exp`` alone: no triton has one that every backend compiles.

    Near 0 the quotient cancels, so a series stands in for it there; its first term left out is
    below 1e-9 of the result.
    """
    size = tl.abs(x)
    e = tl.exp(-2.0 * size)
    far = (1.0 - e) / (1.0 + e)
    square = x * x
    series = 62.0 / 2835.0 * square - 17.0 / 315.0
    series = series * square + 2.0 / 15.0
    series = series * square - 1.0 / 3.0
    series = x + x * square * series
    return tl.where(size < 0.2, series, tl.where(x < 0.0, -far, far))


@jit
def rounded(x: tensor, DTYPE: constexpr, INTERPRETED: constexpr) -> tensor:
    """float32 to the storage dtype, to the nearest, ties to even.

    Compilers do that for every dtype. The interpreter (triton 3.7.1) cuts the lower half off for
    bfloat16, so the rounding is done in integers there, and cutting leaves it as it is.
    """
    if INTERPRETED:
        if tl.bfloat16 == DTYPE:
            bits = x.to(tl.int32, bitcast=True)
            bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000
            x = tl.where(x == x, bits.to(tl.float32, bitcast=True), x)
    return x.to(DTYPE)
