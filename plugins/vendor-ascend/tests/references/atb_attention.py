"""Attention of the transformer-boost library over a cache in NZ, as the 310P has it."""

from __future__ import annotations

import torch

from tests.references.cache import as_rows
from tests.references.paged import attend, gather_sequence
from tests.references.refusals import HALVES, require, require_contiguous, require_dtype

_COMPRESSED = 2048


def npu_paged_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    num_kv_heads: int,
    num_heads: int,
    scale_value: float,
    block_table: torch.Tensor,
    context_lens: torch.Tensor,
    out: torch.Tensor,
    *,
    workspace: torch.Tensor | None = None,
) -> None:
    """``atb::_npu_paged_attention``: one query per sequence."""
    op = "_npu_paged_attention"
    _check(op, query, key_cache, value_cache, block_table, context_lens, num_heads, num_kv_heads)
    require(query.shape[0] == block_table.shape[0], op, "one query per row of block_table")
    require(out.shape == query.shape, op, f"out is {tuple(out.shape)}")
    head_dim = query.shape[2]
    keys = as_rows(key_cache, num_kv_heads, head_dim)
    values = as_rows(value_cache, num_kv_heads, head_dim)
    room = block_table.shape[1] * keys.shape[1]
    places = torch.arange(room, device=query.device).unsqueeze(0)
    own_blocks = _own_blocks(block_table, context_lens, keys.shape[1])
    for row in range(query.shape[0]):
        k = gather_sequence(keys, own_blocks[row], room)
        v = gather_sequence(values, own_blocks[row], room)
        hidden = places >= context_lens[row]  # lengths stay on the device
        one = slice(row, row + 1)
        out[one] = attend(query[one], k, _cleared(v, hidden), scale_value, hidden)


def npu_paged_attention_splitfuse_v2(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    context_lens: torch.Tensor,
    mask: torch.Tensor,
    seq_len: torch.Tensor,
    num_kv_heads: int,
    num_heads: int,
    scale_value: float,
    *,
    mask_type: int | None = 5,
    out: torch.Tensor,
) -> None:
    """``atb::_npu_paged_attention_splitfuse_v2``: any number of queries per sequence.

    The mask is float16 ``[2048, 2048]`` in ND and is added to the scores, by distance from the
    diagonal; ``seq_len`` (queries per sequence) lies on the host, ``context_lens`` on the device.
    """
    op = "_npu_paged_attention_splitfuse_v2"
    _check(op, query, key_cache, value_cache, block_table, context_lens, num_heads, num_kv_heads)
    require(mask_type == 5, op, f"no reference for mask_type {mask_type}")
    compressed = (_COMPRESSED, _COMPRESSED)
    require(tuple(mask.shape) == compressed, op, f"mask is {tuple(mask.shape)}, not {compressed}")
    require(mask.dtype in HALVES, op, f"mask is {mask.dtype}: it is added, so it must be a float")
    require(seq_len.device.type == "cpu", op, f"seq_len must lie on the host, not {seq_len.device}")
    require(seq_len.dtype == torch.int32, op, f"seq_len is {seq_len.dtype}")
    counts = [int(count) for count in seq_len.tolist()]
    require(len(counts) == block_table.shape[0], op, "one length per row of block_table")
    require(sum(counts) == query.shape[0], op, f"{counts} queries; query has {query.shape[0]}")
    head_dim = query.shape[2]
    keys = as_rows(key_cache, num_kv_heads, head_dim)
    values = as_rows(value_cache, num_kv_heads, head_dim)
    room = block_table.shape[1] * keys.shape[1]
    own_blocks = _own_blocks(block_table, context_lens, keys.shape[1])
    start = 0
    for row, count in enumerate(counts):
        part = slice(start, start + count)
        k = gather_sequence(keys, own_blocks[row], room)
        v = gather_sequence(values, own_blocks[row], room)
        bias, beyond = _bias(mask, count, room, context_lens[row])
        v = _cleared(v, beyond[:1])
        out[part] = attend(query[part], k, v, scale_value, beyond, bias)
        start += count


def _check(
    op: str,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    context_lens: torch.Tensor,
    num_heads: int,
    num_kv_heads: int,
) -> None:
    require_dtype(op, HALVES, query=query, key_cache=key_cache, value_cache=value_cache)
    require_contiguous(op, query=query, block_table=block_table, context_lens=context_lens)
    require(query.dim() == 3, op, f"query {tuple(query.shape)} must be [tokens, heads, head_dim]")
    require(query.shape[1] == num_heads, op, f"num_heads {num_heads}; query has {query.shape[1]}")
    require(num_heads % num_kv_heads == 0, op, f"{num_heads} heads for {num_kv_heads} KV heads")
    for name, tensor in (("block_table", block_table), ("context_lens", context_lens)):
        require(tensor.dtype == torch.int32, op, f"{name} is {tensor.dtype}")
    block_size = as_rows(key_cache, num_kv_heads, query.shape[2]).shape[1]
    limit = 128 * 128
    wide = block_size * query.shape[2]
    require(wide <= limit, op, f"block_size * head_dim is {wide}; takes at most {limit}")


def _own_blocks(
    block_table: torch.Tensor, context_lens: torch.Tensor, block_size: int
) -> torch.Tensor:
    """The table with block 0 for all that lies behind a sequence's last block, and is not read."""
    places = torch.arange(block_table.shape[1], device=block_table.device) * block_size
    is_own = places.unsqueeze(0) < context_lens.unsqueeze(1)
    return torch.where(is_own, block_table, torch.zeros_like(block_table))


def _cleared(values: torch.Tensor, beyond: torch.Tensor) -> torch.Tensor:
    """Zeros where the sequence does not reach, whatever lies there.

    Args:
        values: ``[room, num_kv_heads, head_dim]``.
        beyond: bool ``[1, room]``.
    """
    return values.masked_fill(beyond.view(-1, 1, 1), 0)


def _bias(
    mask: torch.Tensor, num_queries: int, room: int, length: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """What the mask adds per query and key, and keys that the sequence does not have yet."""
    device = mask.device
    places = torch.arange(room, device=device).unsqueeze(0)
    own = torch.arange(num_queries, device=device).unsqueeze(1) + (length - num_queries)
    distance = places - own
    rows = (-distance).clamp(min=0, max=_COMPRESSED - 1)
    columns = distance.clamp(min=0, max=_COMPRESSED - 1)
    entries = mask.reshape(-1).index_select(0, (rows * _COMPRESSED + columns).flatten())
    return entries.view(distance.shape), (places >= length).expand(max(num_queries, 1), -1)
