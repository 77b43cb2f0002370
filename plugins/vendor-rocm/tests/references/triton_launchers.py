"""References of the portable Triton kernels' launchers: their signatures, without Triton."""

from __future__ import annotations

import torch
from dougong.contracts import AttentionRequest
from dougong.reference import ReferenceAttentionImpl
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from tests.references.paged_attention import attend_paged

_WRITER = ReferenceAttentionImpl(
    AttentionRequest(num_heads=1, num_kv_heads=1, head_dim=1, dtype="", kv_dtype=""), 1.0
)


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Rounded before the weight, as the op's own meaning."""
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return (wide * scale).to(x.dtype) * weight


def fused_add_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    *,
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The residual is overwritten."""
    residual.add_(x)
    return rms_norm(residual, weight, eps), residual


def silu_and_mul(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Halves of a row."""
    half = x.shape[-1] // 2
    return F.silu(x[..., :half]) * x[..., half:]


def rotary_embedding(
    positions: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    *,
    is_neox: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """In place."""
    half = cos_sin_cache.shape[-1] // 2
    table = cos_sin_cache[positions].unsqueeze(1)
    cos, sin = table[..., :half], table[..., half:]
    for heads in (q, k):
        turned = heads[..., : 2 * half].float()
        if is_neox:
            first, second = turned[..., :half], turned[..., half:]
        else:
            first, second = turned[..., 0::2], turned[..., 1::2]
        pair = first * cos - second * sin, second * cos + first * sin
        joined = torch.cat(pair, dim=-1) if is_neox else torch.stack(pair, dim=-1).flatten(-2)
        heads[..., : 2 * half].copy_(joined.to(heads.dtype))
    return q, k


def write_kv(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Slots below 0 are skipped."""
    _WRITER.write_kv(k, v, (k_cache, v_cache), slot_mapping)


def paged_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    *,
    out: torch.Tensor | None = None,
    sliding_window: int | None = None,
    soft_cap: float | None = None,
    num_splits: int = 1,
    arch: str | None = None,
) -> torch.Tensor:
    """One query token per sequence."""
    starts = torch.arange(q.shape[0] + 1, dtype=torch.int32, device=q.device)
    result = torch.empty_like(q) if out is None else out
    attend_paged(
        q, k_cache, v_cache, block_table, seq_lens, starts, result,
        scale=scale, window=sliding_window, soft_cap=soft_cap or 0.0,
    )  # fmt: skip
    return result


def paged_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    max_query_len: int,
    scale: float,
    *,
    out: torch.Tensor | None = None,
    sliding_window: int | None = None,
    soft_cap: float | None = None,
    arch: str | None = None,
) -> torch.Tensor:
    """Any steps."""
    result = torch.empty_like(q) if out is None else out
    attend_paged(
        q, k_cache, v_cache, block_table, seq_lens, cu_seqlens_q, result,
        scale=scale, window=sliding_window, soft_cap=soft_cap or 0.0,
    )  # fmt: skip
    return result


LAUNCHERS = {
    "norm": (rms_norm, fused_add_rms_norm),
    "activation": (silu_and_mul,),
    "rotary": (rotary_embedding,),
    "kv_cache": (write_kv,),
    "attention": (paged_decode, paged_attention),
}
"""Module of ``dougong_triton_kernels`` → its launchers."""
