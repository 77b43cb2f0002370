"""RMSNorm, with or without a residual added first."""

from __future__ import annotations

from dougong_triton_kernels.kernels.language import constexpr, jit, rounded, tensor, tl


@jit
def rms_norm_kernel(
    x_ptr: tensor,
    residual_ptr: tensor,
    weight_ptr: tensor,
    out_ptr: tensor,
    eps: tensor,
    x_outer: tensor,
    x_inner: tensor,
    residual_stride: tensor,
    out_outer: tensor,
    out_inner: tensor,
    INNER: constexpr,
    SIZE: constexpr,
    BLOCK: constexpr,
    HAS_RESIDUAL: constexpr,
    INTERPRETED: constexpr,
) -> None:
    """One row per program; a row longer than ``BLOCK`` is read twice.

    With a residual the sum is rounded to the storage dtype, stored in the residual's place, and
    what is normalised is the rounded sum. An element is stored after its last load, so the
    residual may be overwritten.
    """
    row = tl.program_id(0).to(tl.int64)
    outer = row // INNER
    inner = row % INNER
    x_ptr += outer * x_outer + inner * x_inner
    out_ptr += outer * out_outer + inner * out_inner
    residual_ptr += row * residual_stride
    column = tl.arange(0, BLOCK)
    if SIZE <= BLOCK:
        is_in = column < SIZE
        x = tl.load(x_ptr + column, mask=is_in, other=0.0).to(tl.float32)
        if HAS_RESIDUAL:
            x += tl.load(residual_ptr + column, mask=is_in, other=0.0).to(tl.float32)
            total = rounded(x, residual_ptr.dtype.element_ty, INTERPRETED)
            tl.store(residual_ptr + column, total, mask=is_in)
            x = total.to(tl.float32)
        factor = 1.0 / tl.sqrt(tl.sum(x * x, 0) / SIZE + eps)
        weight = tl.load(weight_ptr + column, mask=is_in, other=0.0).to(tl.float32)
        normed = rounded(x * factor * weight, out_ptr.dtype.element_ty, INTERPRETED)
        tl.store(out_ptr + column, normed, mask=is_in)
    else:
        squares = tl.zeros([BLOCK], tl.float32)
        for start in range(0, SIZE, BLOCK):
            is_in = start + column < SIZE
            x = tl.load(x_ptr + start + column, mask=is_in, other=0.0).to(tl.float32)
            if HAS_RESIDUAL:
                x += tl.load(residual_ptr + start + column, mask=is_in, other=0.0).to(tl.float32)
                x = rounded(x, residual_ptr.dtype.element_ty, INTERPRETED).to(tl.float32)
            squares += x * x
        factor = 1.0 / tl.sqrt(tl.sum(squares, 0) / SIZE + eps)
        for start in range(0, SIZE, BLOCK):
            is_in = start + column < SIZE
            x = tl.load(x_ptr + start + column, mask=is_in, other=0.0).to(tl.float32)
            if HAS_RESIDUAL:
                x += tl.load(residual_ptr + start + column, mask=is_in, other=0.0).to(tl.float32)
                total = rounded(x, residual_ptr.dtype.element_ty, INTERPRETED)
                tl.store(residual_ptr + start + column, total, mask=is_in)
                x = total.to(tl.float32)
            weight = tl.load(weight_ptr + start + column, mask=is_in, other=0.0).to(tl.float32)
            normed = rounded(x * factor * weight, out_ptr.dtype.element_ty, INTERPRETED)
            tl.store(out_ptr + start + column, normed, mask=is_in)
