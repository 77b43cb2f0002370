"""Rotary position embedding (Su et al. 2021, arXiv:2104.09864)."""

from __future__ import annotations

import torch

from dougong_triton_kernels import checks
from dougong_triton_kernels.launching import Launch, run

_ELEMENTS_PER_PROGRAM = 1024


def rotary_embedding(
    positions: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    *,
    is_neox: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate the leading ``rotary_dim`` elements of every head, in place; returns at enqueue.

    Args:
        positions: int32 or int64 ``[num_tokens]``, rows of ``cos_sin_cache``. One past its end is
            not found out.
        q: ``[num_tokens, num_heads, head_dim]``, last axis contiguous, the others may have gaps.
        k: ``[num_tokens, num_kv_heads, head_dim]``, likewise.
        cos_sin_cache: float32 ``[max_position, rotary_dim]``: cosines, then sines; ``rotary_dim``
            is even and at most ``head_dim``.
        is_neox: Element ``i`` pairs with ``i + rotary_dim / 2``; otherwise ``2i`` with ``2i + 1``.

    Returns:
        ``q`` and ``k``.

    Raises:
        TypeError: A dtype.
        ValueError: A shape, device or stride.
    """
    run(plan_rotary_embedding(positions, q, k, cos_sin_cache, is_neox=is_neox))
    return q, k


def plan_rotary_embedding(
    positions: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    *,
    is_neox: bool = True,
) -> Launch:
    """What `rotary_embedding` launches."""
    checks.same_kind(q=q, k=k)
    checks.shape("q", q, None, None, None)
    num_tokens, num_heads, head_dim = q.shape
    checks.shape("k", k, num_tokens, None, head_dim)
    checks.shape("positions", positions, num_tokens)
    checks.index("positions", positions, *checks.INDEX_DTYPES)
    checks.shape("cos_sin_cache", cos_sin_cache, None, None)
    if cos_sin_cache.dtype is not torch.float32:
        raise TypeError(f"cos_sin_cache is {cos_sin_cache.dtype}; expected float32")
    rotary_dim = cos_sin_cache.shape[1]
    if rotary_dim % 2 or not 0 < rotary_dim <= head_dim:
        raise ValueError(
            f"cos_sin_cache has {rotary_dim} columns and heads have {head_dim} elements; pairs are "
            "rotated, so it is even and at most that"
        )
    if cos_sin_cache.stride(1) != 1:
        raise ValueError(f"The last axis of cos_sin_cache has stride {cos_sin_cache.stride(1)}")
    checks.same_device("q", q, positions=positions, cos_sin_cache=cos_sin_cache)
    half_block = checks.next_power_of_2(rotary_dim // 2)
    most = max(_ELEMENTS_PER_PROGRAM // half_block, 1)
    head_block = min(checks.next_power_of_2(max(num_heads, k.shape[1])), most)
    blocks = -(-num_heads // head_block) + -(-k.shape[1] // head_block)
    return Launch(
        kernel="rotary.rotary_kernel",
        grid=(num_tokens, blocks, 1),
        arguments={
            "position_ptr": positions,
            "cache_ptr": cos_sin_cache,
            "q_ptr": q,
            "k_ptr": k,
            "cache_stride": cos_sin_cache.stride(0),
            "q_token": q.stride(0),
            "q_head": q.stride(1),
            "k_token": k.stride(0),
            "k_head": k.stride(1),
        },
        constants={
            "Q_HEADS": num_heads,
            "K_HEADS": k.shape[1],
            "HALF": rotary_dim // 2,
            "HALF_BLOCK": half_block,
            "HEAD_BLOCK": head_block,
            "IS_NEOX": is_neox,
            "INTERPRETED": False,
        },
        options={"num_warps": 4 if head_block * half_block > 256 else 1, "num_stages": 1},
    )
