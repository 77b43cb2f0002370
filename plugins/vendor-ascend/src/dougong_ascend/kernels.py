"""Kernels of single ops, each with the conditions under which it may run.

Two are off unless the operator turns them on: the vendor's op does not promise all that the core's
op means, and the difference cannot be seen before it is made.
"""

from __future__ import annotations

import torch
from dougong.contracts import AtLeast, Needs
from dougong.ops import register_kernel

from dougong_ascend.names import FAST_TOP_K_ENV, TORCH_NPU

_FLOATS = frozenset({"bfloat16", "float16", "float32"})
_HALVES = frozenset({"bfloat16", "float16"})
MOST_TOP_K = 1024
"""Largest ``k`` that ``npu_top_k_top_p`` takes."""


@register_kernel(
    "fused_add_rms_norm",
    name="ascend/add_rms_norm",
    when=Needs(dtype=_FLOATS, library=TORCH_NPU, weight_format=_FLOATS, hidden_size=AtLeast(16)),
)
def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum and norm in one pass; the first layer has no residual, and needs no sum."""
    if residual is None:
        return torch.ops.npu.npu_rms_norm(x, weight, epsilon=eps)[0], x
    normed, _, total = torch.ops.npu.npu_add_rms_norm(x, residual, weight, epsilon=eps)
    return normed, total


@register_kernel(
    "quantize",
    name="ascend/dynamic_quant",
    when=Needs(
        dtype=_HALVES, library=TORCH_NPU, features={"ascend.w8a8_token"}, format="int8_token"
    ),
)
def dynamic_quant(
    x: torch.Tensor, scale: torch.Tensor | None, format: str
) -> tuple[torch.Tensor, torch.Tensor, None]:
    """One scale per row.

    What the op divides a row of zeros by it does not say; such rows are zeros here in any case.
    """
    values, scales = torch.ops.npu.npu_dynamic_quant(x, dst_type=torch.int8)
    scales = scales.unsqueeze(-1)
    return values.masked_fill(scales == 0, 0), scales, None


@register_kernel(
    "top_k_top_p",
    name="ascend/top_k_top_p",
    when=Needs(library=TORCH_NPU, features={"ascend.top_k_top_p"}, env={FAST_TOP_K_ENV: "1"}),
)
def top_k_top_p(logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Both cuts in one op.

    It takes no ``k`` above 1024, and whether a step has one only the device knows. So where nobody
    asked for a cut, this one cuts to the 1024 most likely tokens; who cannot have that leaves the
    kernel off.
    """
    most = top_k.clamp(max=MOST_TOP_K).int()
    cut: torch.Tensor = torch.ops.npu.npu_top_k_top_p(logits, top_p.to(logits.dtype), most)
    return cut
