"""What attention references share: one sequence out of a paged cache, and the softmax."""

from __future__ import annotations

import torch


def gather_sequence(
    rows: torch.Tensor, block_table_row: torch.Tensor, num_tokens: int
) -> torch.Tensor:
    """The first ``num_tokens`` tokens of one sequence.

    Args:
        rows: ``[num_blocks, block_size, ...]``.
        block_table_row: Blocks of the sequence, in order.
        num_tokens: How many; the table must have blocks for them.
    """
    num_blocks = -(-num_tokens // rows.shape[1])
    blocks = block_table_row[:num_blocks]
    return rows.index_select(0, blocks).flatten(0, 1)[:num_tokens]


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    hidden: torch.Tensor | None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Softmax attention of one sequence in float32.

    Args:
        q: ``[num_queries, num_heads, head_dim]``.
        k: ``[num_keys, num_kv_heads, head_dim]``.
        v: As ``k``, of any width.
        scale: Factor of the scores.
        hidden: bool ``[num_queries, num_keys]``: keys that a query does not see.
        bias: Added to the scores, ``[num_queries, num_keys]``.

    Returns:
        ``[num_queries, num_heads, head_dim of v]`` in the dtype of ``q``.
    """
    num_queries, num_heads, _ = q.shape
    num_kv_heads = k.shape[1]
    grouped = q.float().view(num_queries, num_kv_heads, num_heads // num_kv_heads, -1)
    rows = grouped.permute(1, 2, 0, 3).flatten(1, 2)  # [num_kv_heads, group * num_queries, dim]
    scores = torch.bmm(rows, k.float().permute(1, 2, 0)) * scale
    scores = scores.view(num_kv_heads, -1, num_queries, k.shape[0])
    if bias is not None:
        scores = scores + bias.float()
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    weights = scores.softmax(dim=-1).flatten(1, 2)
    attended = torch.bmm(weights, v.float().permute(1, 0, 2))
    by_head = attended.view(num_heads, num_queries, -1)  # kv heads first, then their group
    return by_head.permute(1, 0, 2).to(q.dtype)
