"""Eight-bit weights and activations."""

from __future__ import annotations

import torch

from tests.references.refusals import HALVES, require, require_dtype

_CODES = {
    1: torch.int8,
    3: torch.int32,
    5: torch.float16,
    6: torch.float32,
    12: torch.qint8,
    15: torch.bfloat16,
}
"""Dtypes by the number that the dispatcher makes of them."""

_EXACT = 1024
"""Products of two int8 that float32 adds without rounding."""


def npu_dynamic_quant(
    input: torch.Tensor,
    *,
    smooth_scales: torch.Tensor | None = None,
    group_index: torch.Tensor | None = None,
    dst_type: int | None = None,
    quant_mode: str = "pertoken",
    dst_type_max: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``(values, scales)``: int8 and float32, one scale per row: the largest size over 127."""
    op = "npu_dynamic_quant"
    require(smooth_scales is None and group_index is None, op, "no reference for smoothing")
    require(quant_mode == "pertoken", op, f"no reference for {quant_mode!r}")
    require(dst_type in (None, 1), op, f"no reference for dst_type {dst_type}")
    require_dtype(op, HALVES, input=input)
    wide = input.float()
    scale = wide.abs().amax(dim=-1, keepdim=True) / 127
    values = (wide / torch.where(scale > 0, scale, torch.ones_like(scale))).round()
    return values.clamp(min=-128, max=127).to(torch.int8), scale.squeeze(-1)


def npu_quant_matmul(
    x1: torch.Tensor,
    x2: torch.Tensor,
    scale: torch.Tensor,
    *,
    offset: torch.Tensor | None = None,
    pertoken_scale: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    output_dtype: int | None = None,
    x1_dtype: int | None = None,
    x2_dtype: int | None = None,
    pertoken_scale_dtype: int | None = None,
    scale_dtype: int | None = None,
    group_sizes: list[int] | None = None,
    y_scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """``(x1 @ x2) * scale * pertoken_scale + bias``; without ``output_dtype`` the result is int8.

    A scale in float16 is refused, as error 161002 of the device does. With a scale per token a bias
    may be float; without one it must be int32 and joins the product before it is scaled.
    """
    op = "npu_quant_matmul"
    unused = (offset, x1_dtype, x2_dtype, pertoken_scale_dtype, scale_dtype, group_sizes, y_scale)
    require(all(one is None for one in unused), op, "no reference for other number formats")
    require(x1.dtype == x2.dtype == torch.int8, op, f"takes int8; got {x1.dtype} and {x2.dtype}")
    require(x1.shape[-1] == x2.shape[0], op, f"x1 {tuple(x1.shape)} and x2 {tuple(x2.shape)}")
    require(max(x1.shape[-1], x2.shape[-1]) <= 65535, op, "last axes take at most 65535")
    good = (torch.float32, torch.bfloat16)
    require(scale.dtype in good, op, f"error 161002: scale is {scale.dtype}")
    require(tuple(scale.shape) in ((1,), (x2.shape[1],)), op, f"scale is {tuple(scale.shape)}")
    out = _CODES.get(1 if output_dtype is None else output_dtype)
    require(out in (*HALVES, torch.float32), op, f"no reference for output_dtype {output_dtype}")
    if out == torch.float16:
        require(scale.dtype == torch.float32, op, "a float16 result takes a float32 scale")
        require(pertoken_scale is not None, op, "a float16 result takes a scale per token")
    product = _exact_product(x1, x2)
    if bias is not None and pertoken_scale is None:
        require(bias.dtype == torch.int32, op, f"bias is {bias.dtype}; takes int32")
        product = product + bias
    result = product.float() * scale.float()
    if pertoken_scale is not None:
        require(pertoken_scale.dtype == torch.float32, op, "pertoken_scale must be float32")
        require(tuple(pertoken_scale.shape) == (x1.shape[0],), op, "one pertoken_scale per row")
        result = result * pertoken_scale.unsqueeze(-1)
        if bias is not None:
            result = result + bias.float()
    return result.to(out)


def _exact_product(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(x1.shape[0], x2.shape[1], dtype=torch.int32, device=x1.device)
    for start in range(0, x1.shape[1], _EXACT):
        part = slice(start, start + _EXACT)
        total = total + torch.mm(x1[:, part].float(), x2[part].float()).to(torch.int32)
    return total
