"""Products with weights of 8 bits."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.rungs.fakes.checks import EIGHT_BITS, HALVES, alike, need


def fp8_gemm_w8a16(A: Tensor, B: Tensor, B_scale_: Tensor | None, bias_: Tensor | None) -> Tensor:  # noqa: N803 (the schema's)
    need(A.dtype in HALVES, f"A is {A.dtype}")
    need(B.dtype in EIGHT_BITS, f"B is {B.dtype}")
    need(B.dim() == 2 and A.shape[-1] == B.shape[0], f"{[*A.shape]} times {[*B.shape]}")
    if B_scale_ is not None:
        need(B_scale_.dtype is torch.float32, f"B_scale_ is {B_scale_.dtype}")
        need(B_scale_.numel() in (1, B.shape[1]), f"{B_scale_.numel()} scales for {[*B.shape]}")
    alike(A, bias_, "bias_")
    return A.new_empty((*A.shape[:-1], B.shape[1]))
