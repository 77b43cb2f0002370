"""A product with a weight of 8 bits."""

from __future__ import annotations

import torch

from tests.references.limits import HALVES, check

_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)


def fp8_gemm_w8a16(
    A: torch.Tensor,  # noqa: N803 - the schema's names
    B: torch.Tensor,  # noqa: N803
    B_scale_: torch.Tensor | None,  # noqa: N803
    bias_: torch.Tensor | None,
) -> torch.Tensor:
    """``A @ (B * scale) + bias`` with ``B`` ``[in, out]``, which may be a turned view."""
    check(A.dtype in HALVES, "A in half precision")
    check(B.dtype in _FP8, "B of 8 bits")
    check(A.shape[-1] == B.shape[0], "A and B do not fit")
    wide = B.float() if B_scale_ is None else B.float() * B_scale_.float()
    product = A.float() @ wide
    return (product if bias_ is None else product + bias_.float()).to(A.dtype)
