"""Ops computed by the portable Triton kernels, on every family they were compiled for."""

from __future__ import annotations

from typing import Final

import torch
from dougong.contracts import Needs
from dougong.ops import register_kernel
from dougong_triton_kernels import activation, norm, rotary

TRITON: Final = "triton-kernels"
"""The library that conditions of kernels and backends name."""

FEATURE: Final = "rocm.triton"
_FLOATS = frozenset({"bfloat16", "float16", "float32"})
_NEEDS = Needs(dtype=_FLOATS, features={FEATURE}, library=TRITON)


@register_kernel("rms_norm", name="rocm/triton_rms_norm", when=_NEEDS)
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Rows may lie anywhere."""
    return norm.rms_norm(x, weight, eps)


@register_kernel(
    "fused_add_rms_norm",
    name="rocm/triton_add_rms_norm",
    when=_NEEDS,
    mutates=("residual",),
)
def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum is written over the residual."""
    if residual is None:
        return norm.rms_norm(x, weight, eps), x
    return norm.fused_add_rms_norm(x, residual, weight, eps)


@register_kernel("silu_and_mul", name="rocm/triton_silu_and_mul", when=_NEEDS)
def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """Gate and up are halves of one row."""
    return activation.silu_and_mul(x)


@register_kernel(
    "rotary_embedding",
    name="rocm/triton_rotary",
    when=_NEEDS,
    mutates=("q", "k"),
)
def rotary_embedding(
    positions: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    cos_sin: torch.Tensor,
    rotary_dim: int,
    is_neox: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """In place: queries and keys stay parts of the projection's output."""
    return rotary.rotary_embedding(positions, q, k, cos_sin, is_neox=is_neox)
