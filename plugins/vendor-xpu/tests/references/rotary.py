"""Rotation by position, alone and behind the norms of queries and keys."""

from __future__ import annotations

import torch

from tests.references.limits import HALVES, check, check_float

_HEAD_SIZES = (64, 128, 256, 512)


def rotary_embedding(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor | None,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
) -> None:
    """In place, every product rounded to the storage dtype.

    The kernel has one distance between heads, that of the queries, and uses it for the keys.
    """
    check_float(query, "rotary_embedding")
    check(positions.dtype == torch.int64, "expected scalar type Long")
    check(cos_sin_cache.dtype == query.dtype, f"expected scalar type {query.dtype}")
    check(positions.dim() == 1, "positions must have shape [num_tokens] or [batch_size, seq_len]")
    for heads in (query,) if key is None else (query, key):
        check(heads.shape[0] == positions.shape[0], "must have the same number of tokens")
        check(heads.stride(-1) == 1 and heads.shape[-1] == head_size, "heads are read as they lie")
        check(heads.stride(-2) == query.stride(-2), "keys are read at the queries' distance")
        rows = cos_sin_cache.index_select(0, positions).unsqueeze(1)
        _rotate(heads, rows, is_neox)


def fused_qk_norm_rope(
    qkv: torch.Tensor,
    num_heads_q: int,
    num_heads_k: int,
    num_heads_v: int,
    head_dim: int,
    eps: float,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
    position_ids: torch.Tensor,
    forced_token_heads_per_warp: int = -1,
) -> None:
    """In place, all of it in float32, rounded once. Values stay as they are."""
    check(qkv.dtype in HALVES, f'"fused_qk_norm_rope" not implemented for {qkv.dtype}')
    check(qkv.dim() == 2 and qkv.is_contiguous(), "QKV tensor must be 2D and contiguous")
    check(head_dim in _HEAD_SIZES, f"Unsupported head dimension: {head_dim}")
    check(position_ids.dtype == torch.int64, "position_ids must be int64")
    check(q_weight.dtype == k_weight.dtype == qkv.dtype, "must have the same dtype")
    check(cos_sin_cache.shape[1] <= head_dim, "rotary_dim must be less than or equal to head_dim")
    total = num_heads_q + num_heads_k + num_heads_v
    check(qkv.shape[1] == total * head_dim, "QKV tensor size must match total number of heads")
    heads = qkv.view(-1, total, head_dim)
    rows = cos_sin_cache.index_select(0, position_ids).unsqueeze(1).float()
    parts = ((0, num_heads_q, q_weight), (num_heads_q, num_heads_k, k_weight))
    for start, count, weight in parts:
        part = heads[:, start : start + count]
        wide = part.float()
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
        normed = wide * scale * weight.float()
        _rotate(normed, rows, is_neox)
        part.copy_(normed)


def _rotate(heads: torch.Tensor, rows: torch.Tensor, is_neox: bool) -> None:
    """In place; ``rows`` ``[num_tokens, 1, rotary_dim]``: cosines, then sines."""
    half = rows.shape[-1] // 2
    cos, sin = rows[..., :half], rows[..., half:]
    if is_neox:
        first, second = heads[..., :half], heads[..., half : 2 * half]
    else:
        first, second = heads[..., 0 : 2 * half : 2], heads[..., 1 : 2 * half : 2]
    turned = first * cos - second * sin, second * cos + first * sin
    first.copy_(turned[0])
    second.copy_(turned[1])
