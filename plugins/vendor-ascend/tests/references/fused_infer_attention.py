"""``npu_fused_infer_attention_score``: one op for prefill and decode over a paged cache."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

from tests.references.paged import attend, gather_sequence
from tests.references.refusals import (
    HALVES,
    require,
    require_contiguous,
    require_dtype,
    require_unused,
)

_OP = "npu_fused_infer_attention_score"
_MASK = 2048
_CAUSAL, _BAND = 3, 4


def npu_fused_infer_attention_score(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    atten_mask: torch.Tensor | None = None,
    actual_seq_lengths: Sequence[int] | None = None,
    actual_seq_lengths_kv: Sequence[int] | None = None,
    block_table: torch.Tensor | None = None,
    num_heads: int = 1,
    scale: float = 1.0,
    pre_tokens: int = 2147483647,
    next_tokens: int = 2147483647,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    sparse_mode: int = 0,
    block_size: int = 0,
    **others: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Paged attention in the layout TND; every other way of calling it has no reference.

    Args:
        query: ``[num_tokens, num_heads, head_dim]``.
        key: ``[num_blocks, block_size, num_key_value_heads * head_dim]``.
        value: As ``key``.
        atten_mask: int8 or bool ``[2048, 2048]``, 1 where a key is hidden: read by its distance
            from the diagonal.
        actual_seq_lengths: Cumulative query lengths; the last is ``num_tokens``.
        actual_seq_lengths_kv: Lengths of the sequences, not cumulative.
        block_table: int32, one row per sequence.
        num_heads: Query heads.
        scale: Factor of the scores, 1 unless given.
        pre_tokens: In band mode: keys before a query's own that it sees.
        next_tokens: In band mode: keys after it.
        input_layout: Only ``"TND"``.
        num_key_value_heads: KV heads; 0 means ``num_heads``.
        sparse_mode: 3 causal, 4 band; both aligned to the last key.
        block_size: Tokens per block.
        **others: Must be at their defaults.

    Returns:
        The attended queries, and an empty tensor in the place of the log-sum-exp.
    """
    require_unused(_OP, others)
    require(input_layout == "TND", _OP, f"no reference for layout {input_layout!r}")
    require(block_table is not None, _OP, "no reference without a block table")
    require(actual_seq_lengths is not None, _OP, "TND needs actual_seq_lengths")
    require(actual_seq_lengths_kv is not None, _OP, "a paged cache needs actual_seq_lengths_kv")
    assert block_table is not None and actual_seq_lengths is not None
    assert actual_seq_lengths_kv is not None
    num_kv_heads = num_key_value_heads or num_heads
    _check_tensors(query, key, value, block_table, num_heads, num_kv_heads, block_size)
    ends, lengths = list(actual_seq_lengths), list(actual_seq_lengths_kv)
    _check_lengths(query, block_table, ends, lengths, block_size)
    mask = _checked_mask(atten_mask, sparse_mode)
    out = torch.empty_like(query)
    for row, ((start, end), length) in enumerate(zip(pairwise([0, *ends]), lengths, strict=True)):
        if start == end:
            continue
        k = gather_sequence(key, block_table[row], length).view(length, num_kv_heads, -1)
        v = gather_sequence(value, block_table[row], length).view(length, num_kv_heads, -1)
        hidden = _hidden(mask, end - start, length, sparse_mode, pre_tokens, next_tokens)
        out[start:end] = attend(query[start:end], k, v, scale, hidden)
    return out, query.new_empty(0, dtype=torch.float32)


def npu_fused_infer_attention_score_out(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    workspace: torch.Tensor | None = None,
    out: Sequence[torch.Tensor],
    **keywords: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Into given tensors; the workspace is the kernel's scratch memory and has no meaning here."""
    attended, lse = npu_fused_infer_attention_score(query, key, value, **keywords)
    require(out[0].shape == attended.shape, _OP, f"out[0] is {tuple(out[0].shape)}")
    out[0].copy_(attended)
    return out[0], out[1] if len(out) > 1 else lse


def npu_fused_infer_attention_score_get_max_workspace(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **keywords: Any
) -> torch.Tensor:
    """Scratch memory for one call; the reference needs none."""
    return query.new_empty(1, dtype=torch.uint8)


def _check_tensors(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    block_table: torch.Tensor,
    num_heads: int,
    num_kv_heads: int,
    block_size: int,
) -> None:
    require_dtype(_OP, HALVES, query=query, key=key, value=value)
    require_contiguous(_OP, query=query, key=key, value=value, block_table=block_table)
    require(query.dim() == 3, _OP, f"query {tuple(query.shape)} must be [tokens, heads, head_dim]")
    head_dim = query.shape[2]
    require(query.shape[1] == num_heads, _OP, f"num_heads {num_heads}; query has {query.shape[1]}")
    require(num_heads % num_kv_heads == 0, _OP, f"{num_heads} heads for {num_kv_heads} KV heads")
    require(num_heads <= 256, _OP, f"{num_heads} heads; takes at most 256")
    require(num_heads // num_kv_heads <= 64, _OP, "at most 64 heads share one KV head")
    require(head_dim <= 512, _OP, f"head_dim {head_dim}; takes at most 512")
    width = num_kv_heads * head_dim
    require(width <= 65535, _OP, f"a cache row of {width}; takes at most 65535")
    shape = (key.shape[0], block_size, width)
    require(tuple(key.shape) == shape, _OP, f"key is {tuple(key.shape)}, not {shape}")
    require(value.shape == key.shape, _OP, "key and value differ")
    require(block_table.dtype == torch.int32, _OP, f"block_table is {block_table.dtype}")
    require(block_table.dim() == 2, _OP, "block_table must have two axes")


def _check_lengths(
    query: torch.Tensor,
    block_table: torch.Tensor,
    ends: list[int],
    lengths: list[int],
    block_size: int,
) -> None:
    counts = [end - start for start, end in pairwise([0, *ends])]
    require(all(count >= 0 for count in counts), _OP, f"{ends} must be cumulative")
    total = query.shape[0]
    require(bool(ends) and ends[-1] == total, _OP, f"error 561002: {ends} must end with {total}")
    rows = block_table.shape[0]
    same = len(ends) == len(lengths) == rows
    require(same, _OP, f"error 561002: {len(ends)} and {len(lengths)} lengths, {rows} table rows")
    require(rows <= 4096, _OP, f"{rows} sequences; takes at most 4096")
    for count, length in zip(counts, lengths, strict=True):
        require(count <= length or not count, _OP, f"{count} queries on {length} keys")
        room = block_table.shape[1] * block_size
        require(length <= room, _OP, f"length {length}; the block table has room for {room}")
    if max(counts) > 1:
        good = block_size % 128 == 0 and 128 <= block_size <= 512
        require(good, _OP, f"block_size {block_size}; takes 128, 256, 384 and 512")
    else:
        good = block_size % 16 == 0 and 16 <= block_size <= 512
        require(good, _OP, f"block_size {block_size}; takes multiples of 16 up to 512")
        require(max(lengths) <= 262144, _OP, "a decode takes at most 262144 keys")


def _checked_mask(mask: torch.Tensor | None, sparse_mode: int) -> torch.Tensor:
    require(sparse_mode in (_CAUSAL, _BAND), _OP, f"no reference for sparse_mode {sparse_mode}")
    require(mask is not None, _OP, f"sparse_mode {sparse_mode} needs atten_mask")
    assert mask is not None
    require(tuple(mask.shape) == (_MASK, _MASK), _OP, f"atten_mask is {tuple(mask.shape)}")
    require(mask.dtype in (torch.int8, torch.bool, torch.uint8), _OP, f"atten_mask is {mask.dtype}")
    require_contiguous(_OP, atten_mask=mask)
    return mask


def _hidden(
    mask: torch.Tensor,
    num_queries: int,
    num_keys: int,
    sparse_mode: int,
    pre_tokens: int,
    next_tokens: int,
) -> torch.Tensor:
    """bool ``[num_queries, num_keys]``, from the mask's entries at the same distance."""
    device = mask.device
    own = torch.arange(num_keys - num_queries, num_keys, device=device).unsqueeze(1)
    distance = torch.arange(num_keys, device=device).unsqueeze(0) - own  # 0: a query's own key
    if sparse_mode == _BAND:
        before = distance + pre_tokens < 0
        return before.logical_or(distance > next_tokens)
    rows = (-distance).clamp(min=0, max=_MASK - 1)
    columns = distance.clamp(min=0, max=_MASK - 1)
    entries = mask.view(-1).index_select(0, (rows * _MASK + columns).flatten())
    return (entries != 0).view(distance.shape)
