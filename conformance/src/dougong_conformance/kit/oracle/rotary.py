"""Rotation by position."""

from __future__ import annotations

import torch

from dougong_conformance.kit.metric import F64, HALF_ULP, Expected
from dougong_conformance.kit.oracle.norm import rms_norm


def rotary(
    x: torch.Tensor,
    positions: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    *,
    is_neox: bool = True,
    error: torch.Tensor | None = None,
) -> Expected:
    """Leading elements of each head rotated; products, cosines and sines may be rounded.

    Args:
        x: ``[num_tokens, heads, head_dim]``.
        positions: int64 ``[num_tokens]``.
        cos_sin_cache: float32 ``[max_position, rotary_dim]``.
        is_neox: Halves are pairs; otherwise neighbours.
        error: Size of ``x`` where it may be rounded before; ``None``: it is exact.
    """
    rotary_dim = cos_sin_cache.shape[1]
    cos, sin = cos_sin_cache.to(F64)[positions].unsqueeze(1).chunk(2, dim=-1)
    value = _rotate(x.to(F64), cos, sin, rotary_dim, is_neox, is_size=False)
    size = _rotate(x.to(F64).abs(), cos.abs(), sin.abs(), rotary_dim, is_neox, is_size=True)
    is_rotated = torch.arange(x.shape[-1]) < rotary_dim
    # Two numbers of each product may be rounded, and the products.
    rounded = torch.where(is_rotated, 2 * size, 0.0)
    if error is not None:
        reached = _rotate(error, cos.abs(), sin.abs(), rotary_dim, is_neox, is_size=True)
        rounded = rounded + reached
    return Expected(value, torch.where(is_rotated, size, 0.0), rounded, 2, x.dtype)


def qkv_norm_rope(
    qkv: torch.Tensor,
    positions: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    *,
    num_heads: int,
    num_kv_heads: int,
    q_weight: torch.Tensor | None,
    k_weight: torch.Tensor | None,
    eps: float | None,
    is_neox: bool = True,
) -> tuple[Expected, Expected, torch.Tensor]:
    """Queries and keys, and the values as they were."""
    num_parts = num_heads + 2 * num_kv_heads
    head_dim = qkv.shape[-1] // num_parts
    heads = qkv.view(qkv.shape[0], num_parts, head_dim)
    q, k, v = heads.split_with_sizes((num_heads, num_kv_heads, num_kv_heads), dim=1)
    rotated = []
    for part, weight in ((q, q_weight), (k, k_weight)):
        if weight is None or eps is None:
            rotated.append(rotary(part, positions, cos_sin_cache, is_neox=is_neox))
            continue
        normed = rms_norm(part, weight, eps)
        # What comes out of the norm was rounded twice, and the rounded one goes on.
        error = 2 * normed.value.abs() + 2.0**-24 / HALF_ULP[qkv.dtype] * normed.value.abs()
        after = rotary(normed.value, positions, cos_sin_cache, is_neox=is_neox, error=error)
        rotated.append(Expected(after.value, after.condition, after.rounded, head_dim, qkv.dtype))
    return rotated[0], rotated[1], v


def _rotate(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    rotary_dim: int,
    is_neox: bool,
    *,
    is_size: bool,
) -> torch.Tensor:
    turned, rest = x[..., :rotary_dim], x[..., rotary_dim:]
    if is_neox:
        first, second = turned.chunk(2, dim=-1)
    else:
        first, second = turned[..., 0::2], turned[..., 1::2]
    sign = 1 if is_size else -1
    pair = (first * cos + sign * second * sin, second * cos + first * sin)
    joined = torch.cat(pair, -1) if is_neox else torch.stack(pair, -1).flatten(-2)
    return torch.cat((joined, rest), dim=-1)
