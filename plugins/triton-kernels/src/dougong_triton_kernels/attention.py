"""Attention over a paged cache: one query per sequence, or several."""

from __future__ import annotations

import torch

from dougong_triton_kernels.attention_launches import (
    Call,
    check_paged_attention,
    check_paged_decode,
    plan_paged_attention,
    plan_paged_decode,
)
from dougong_triton_kernels.launching import run
from dougong_triton_kernels.targets import current_arch


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
    """Attention of the newest token of each sequence; returns at enqueue.

    Reads no length on the host, so a captured call serves other lengths at its replay.

    Args:
        q: ``[num_seqs, num_heads, head_dim]``, last axis contiguous, the others may have gaps.
        k_cache: ``[num_blocks, block_size, num_kv_heads, head_dim]``, of any strides but the last:
            a cache that is stored with heads before tokens comes as a permuted view.
            ``num_kv_heads`` divides ``num_heads``; ``head_dim`` is at most 256.
        v_cache: The same for values.
        block_table: int32 ``[num_seqs, max_blocks]``. Entries past a sequence's last block are not
            read.
        seq_lens: int32 ``[num_seqs]``: tokens with KV, the newest included. A row of 0 is padding
            and gets zeros.
        scale: Factor of ``q @ k``.
        out: Of the shape of ``q`` to write to; ``None``: a new one.
        sliding_window: Tokens a query sees, itself included; ``None``: all.
        soft_cap: Scores become ``cap * tanh(score / cap)``; ``None``: no cap.
        num_splits: Parts of a sequence computed at the same time and then combined, 1 to 64: for
            few long sequences on many compute units. Takes ``num_seqs * num_heads * num_splits *
            (head_dim + 2)`` float32 numbers of workspace.
        arch: Chip, for the sizes of tiles; ``None``: the one of triton's active driver.

    Returns:
        ``out``.

    Raises:
        TypeError: A dtype.
        ValueError: A shape, device, stride or number.
    """
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if out is None else out
    call = Call(q, k_cache, v_cache, block_table, seq_lens, scale, out, sliding_window, soft_cap)
    check_paged_decode(call, num_splits)
    for launch in plan_paged_decode(call, num_splits, current_arch() if arch is None else arch):
        run(launch)
    return out


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
    """Causal attention of each sequence's last tokens, any number per sequence; returns at enqueue.

    Args:
        q: ``[num_tokens, num_heads, head_dim]``, sequences one after the other.
        k_cache: As `paged_decode` takes it; it holds the keys of the queries' own tokens already.
        v_cache: The same for values.
        block_table: As `paged_decode` takes it.
        seq_lens: int32 ``[num_seqs]``: tokens with KV, the queries' own included.
        cu_seqlens_q: int32 ``[num_seqs + 1]``: queries of sequence ``i`` are rows
            ``cu_seqlens_q[i]`` to ``cu_seqlens_q[i + 1]``; none is right. Rows of ``q`` past the
            last are padding; in ``out`` they stay as they are.
        max_query_len: Most queries of one sequence, or a bound of it.
        scale: As `paged_decode` takes it.
        out: As `paged_decode` takes it.
        sliding_window: As `paged_decode` takes it.
        soft_cap: As `paged_decode` takes it.
        arch: As `paged_decode` takes it.

    Returns:
        ``out``.

    Raises:
        TypeError: A dtype.
        ValueError: A shape, device, stride or number.
    """
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if out is None else out
    call = Call(q, k_cache, v_cache, block_table, seq_lens, scale, out, sliding_window, soft_cap)
    check_paged_attention(call, cu_seqlens_q, max_query_len)
    name = current_arch() if arch is None else arch
    run(plan_paged_attention(call, cu_seqlens_q, max_query_len, name))
    return out
