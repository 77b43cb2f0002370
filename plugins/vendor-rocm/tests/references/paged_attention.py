"""Causal attention over a paged cache, on any device and without waiting for one."""

from __future__ import annotations

import torch


def attend_paged(
    q: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    out: torch.Tensor,
    *,
    scale: float,
    window: int | None,
    soft_cap: float,
) -> None:
    """Rows of ``out`` that belong to a sequence are written, others are left as they are.

    Args:
        q: ``[num_tokens, num_heads, head_dim]``.
        key_cache: ``[blocks, tokens, num_kv_heads, head_dim]``.
        value_cache: The same.
        block_table: ``[num_seqs, max_blocks]``; entries past a sequence's end are anything.
        seq_lens: ``[num_seqs]``.
        cu_seqlens_q: ``[num_seqs + 1]``.
        out: As ``q``.
        scale: Of scores.
        window: Tokens a query sees, itself included; ``None``: all.
        soft_cap: 0: none.
    """
    num_blocks, block_size = key_cache.shape[:2]
    at = torch.arange(q.shape[0], device=q.device, dtype=torch.int32)
    wide = q.float()
    for index in range(block_table.shape[0]):
        blocks = block_table[index].long().clamp(0, num_blocks - 1)
        keys, values = (cache[blocks].flatten(0, 1).float() for cache in (key_cache, value_cache))
        key_at = torch.arange(blocks.shape[0] * block_size, device=q.device, dtype=torch.int32)
        start, end, length = cu_seqlens_q[index], cu_seqlens_q[index + 1], seq_lens[index]
        query_at = (at - end + length).unsqueeze(1)
        is_hidden = (key_at > query_at) | (key_at >= length)
        if window is not None:
            is_hidden = is_hidden | (key_at <= query_at - window)
        is_own = (at >= start) & (at < end)
        is_there = (key_at < length).view(-1, 1, 1)
        zero = torch.zeros((), device=q.device)
        keys, values = torch.where(is_there, keys, zero), torch.where(is_there, values, zero)
        attended = _attend(wide, keys, values, is_hidden, scale, soft_cap)
        rows = torch.where(is_own.view(-1, 1, 1), attended.to(out.dtype), out)
        out.copy_(rows)


def _attend(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    is_hidden: torch.Tensor,
    scale: float,
    soft_cap: float,
) -> torch.Tensor:
    repeats = q.shape[1] // keys.shape[1]
    keys, values = (one.repeat_interleave(repeats, dim=1) for one in (keys, values))
    scores = torch.einsum("qhd,khd->hqk", q, keys) * scale
    if soft_cap:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    scores = scores.masked_fill(is_hidden, -1e30)  # finite: rows of other sequences see nothing
    return torch.einsum("hqk,khd->qhd", scores.softmax(dim=-1), values)
