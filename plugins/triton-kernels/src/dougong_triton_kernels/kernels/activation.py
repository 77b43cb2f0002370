"""Gated activations."""

from __future__ import annotations

from dougong_triton_kernels.kernels.language import constexpr, jit, rounded, tensor, tl


@jit
def silu_and_mul_kernel(
    x_ptr: tensor,
    out_ptr: tensor,
    size: tensor,
    x_stride: tensor,
    out_stride: tensor,
    BLOCK: constexpr,
    INTERPRETED: constexpr,
) -> None:
    """``silu(x[:size]) * x[size:]`` of a piece of one row, in float32, rounded once."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_in = column < size
    gate = tl.load(x_ptr + row * x_stride + column, mask=is_in, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * x_stride + size + column, mask=is_in, other=0.0).to(tl.float32)
    product = gate / (1.0 + tl.exp(-gate)) * up
    result = rounded(product, out_ptr.dtype.element_ty, INTERPRETED)
    tl.store(out_ptr + row * out_stride + column, result, mask=is_in)
