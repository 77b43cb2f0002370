"""Low-rank adapters."""

from __future__ import annotations

import torch

from dougong_conformance.kit.metric import F64, HALF_ULP, Expected


def add_lora(
    out: torch.Tensor,
    x: torch.Tensor,
    lora_a: torch.Tensor,
    lora_b: torch.Tensor,
    scale: float,
    indices: torch.Tensor,
) -> Expected:
    """``out + scale * x @ A.T @ B.T`` per token; ``-1`` has no adapter and keeps its bits.

    The sum is rounded once; so may be what is added to it, and the narrow product in the middle.
    """
    value, condition = out.to(F64), torch.zeros(out.shape, dtype=F64)
    rounded = torch.zeros(out.shape, dtype=F64)
    for token, index in enumerate(indices.tolist()):
        if index < 0:
            continue
        a, b, row = lora_a[index].to(F64), lora_b[index].to(F64), x[token].to(F64)
        inner, inner_size = a @ row, a.abs() @ row.abs()
        added = scale * (b @ inner)
        value[token] += added
        condition[token] = abs(scale) * (b.abs() @ inner_size) + out[token].to(F64).abs()
        middle = abs(scale) * (b.abs() @ inner.abs())
        rounded[token] = added.abs() + middle * (1 + 2.0**-24 / HALF_ULP[out.dtype])
    n = x.shape[-1] * lora_a.shape[1]
    return Expected(value, condition, rounded, n, out.dtype)
