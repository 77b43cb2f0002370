"""The paged cache, and attention over it."""

from __future__ import annotations

import math

import torch
from dougong.contracts import AttentionPhase, AttentionRequest

from dougong_xpu.compiled import missing_kernels
from tests.references.limits import HALVES, check

_HIDDEN = -1e30  # finite: where every key is hidden, as in padding, no NaN comes out
_ALIGNMENT_BYTES = 16


def reshape_and_cache_flash(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    kv_cache_dtype: str,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
) -> None:
    """Rows of negative slots are left out: here they write what another row writes, to its slot."""
    check(slot_mapping.dtype == torch.int64, "expected scalar type Long for slot_mapping")
    check(kv_cache_dtype == "auto", f"this reference has no cache of {kv_cache_dtype}")
    check(k_scale.dtype == v_scale.dtype == torch.float32, "scales are float32")
    num_rows = slot_mapping.shape[0]
    is_written = slot_mapping >= 0
    own = torch.arange(num_rows, device=slot_mapping.device)
    source = torch.where(is_written, own, is_written.int().argmax())
    slots = slot_mapping[source]
    has_slot = (slots >= 0).view(-1, 1, 1)
    slots = slots.clamp(min=0)
    for new, cache in ((key, key_cache), (value, value_cache)):
        check(cache.dim() == 4 and cache.dtype == new.dtype, "cache and rows differ in dtype")
        check(new.stride(1) == new.shape[2], "heads of a token are read as contiguous")
        check(cache.shape[2:] == new.shape[1:], "cache and rows differ in heads or head size")
        flat = cache.view(-1, *cache.shape[2:])
        flat[slots] = torch.where(has_slot, new[:num_rows][source], flat[slots])


def varlen_fwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor | None,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    seqused_k: torch.Tensor | None,
    leftpad_k: torch.Tensor | None,
    block_table: torch.Tensor | None,
    alibi_slopes: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    p_dropout: float,
    q_scale: torch.Tensor | None,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    softmax_scale: float,
    softmax_sink: torch.Tensor | None,
    zero_tensors: bool,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    return_softmax: bool,
    gen: torch.Generator | None,
    num_splits: int | None,
    mix_batch: bool,
    splits_per_seq: torch.Tensor | None,
    work_list: torch.Tensor | None,
) -> list[torch.Tensor]:
    """Paged only. ``softcap`` is taken and has no effect, as in the library's source."""
    check(block_table is not None and seqused_k is not None, "this reference is of paged caches")
    check(out is not None, "this reference writes into memory that is given")
    assert block_table is not None and seqused_k is not None and out is not None
    _check_tensors(q, k, v, block_table, cu_seqlens_q, cu_seqlens_k)
    _check_compiled(q, k, max_seqlen_q, window_size_left)
    is_other = leftpad_k, alibi_slopes, q_scale, k_scale, v_scale, softmax_sink
    check(all(one is None for one in is_other), "this reference has none of the further inputs")
    check(p_dropout == 0.0 and not return_softmax, "this reference is of inference")
    num_blocks = math.ceil(max_seqlen_k / k.shape[1])
    tables = block_table[:, :num_blocks]
    attended = _attend(
        _padded_queries(q, cu_seqlens_q, max_seqlen_q),
        _gathered(k, tables),
        _gathered(v, tables),
        _hidden(
            cu_seqlens_q, seqused_k, max_seqlen_q, tables.shape[1] * k.shape[1], window_size_left
        ),
        softmax_scale,
    )
    out.copy_(_unpadded(attended, cu_seqlens_q, q.shape[0]).to(out.dtype))
    return [out, torch.empty(0, device=q.device)]


def _check_tensors(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    block_table: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
) -> None:
    check(q.dtype in HALVES, "VLLM Kernel XPU only supports fp16, bf16, and fp8 query types")
    check(v.dtype == k.dtype, "key and value must have the same dtype")
    check(k.dtype == q.dtype, "query and key must have the same dtype")
    check(q.dim() == 3, "query must be in ragged format")
    for x in (q, k, v):
        check(x.stride(-1) == 1, "Input tensor must have contiguous last dimension")
        strides = [one * x.element_size() for one in x.stride()[:-1]]
        check(
            all(one % _ALIGNMENT_BYTES == 0 for one in strides), "a stride is not 16-byte aligned"
        )
    check(block_table.dtype == torch.int32, "page_table must have dtype torch.int32")
    check(block_table.stride(-1) == 1, "page_table must have contiguous last dimension")
    check(k.shape[1] % 16 == 0, "unsupported block_size (supported: any positive multiple of 16)")
    for starts in (cu_seqlens_q, cu_seqlens_k):
        check(starts.dtype == torch.int32, "cu_seqlens must have dtype torch.int32")
        check(starts.is_contiguous(), "cu_seqlens must be contiguous")


def _check_compiled(q: torch.Tensor, k: torch.Tensor, max_seqlen_q: int, window: int) -> None:
    request = AttentionRequest(
        num_heads=q.shape[1],
        num_kv_heads=k.shape[2],
        head_dim=q.shape[2],
        dtype=str(q.dtype).removeprefix("torch."),
        kv_dtype=str(k.dtype).removeprefix("torch."),
        block_size=k.shape[1],
        phase=AttentionPhase.DECODE if max_seqlen_q == 1 else AttentionPhase.MIXED,
        sliding_window=None if window < 0 else window + 1,
    )
    problems = tuple(missing_kernels(request))
    check(not problems, f"kernel tuple not compiled for this configuration: {problems}")


def _padded_queries(q: torch.Tensor, starts: torch.Tensor, longest: int) -> torch.Tensor:
    """``[num_seqs, longest, num_heads, head_dim]``; rows behind a sequence's are any."""
    rows = starts[:-1].unsqueeze(1) + torch.arange(longest, device=q.device)
    rows = rows.clamp(max=q.shape[0] - 1)
    return q.index_select(0, rows.flatten()).view(*rows.shape, *q.shape[1:]).float()


def _gathered(cache: torch.Tensor, tables: torch.Tensor) -> torch.Tensor:
    """``[num_seqs, num_keys, num_kv_heads, head_dim]``."""
    blocks = cache[tables.flatten().long()]
    return blocks.view(tables.shape[0], -1, *cache.shape[2:]).float()


def _hidden(
    starts: torch.Tensor, lengths: torch.Tensor, longest: int, num_keys: int, window_left: int
) -> torch.Tensor:
    """``[num_seqs, longest, num_keys]``: keys that a query does not see."""
    num_queries = (starts[1:] - starts[:-1]).unsqueeze(1)
    own = torch.arange(longest, device=starts.device)
    query_at = (lengths.unsqueeze(1) - num_queries + own).unsqueeze(2)
    key_at = torch.arange(num_keys, device=starts.device)
    hidden = key_at > query_at
    if window_left >= 0:
        hidden = hidden | (key_at < query_at - window_left)
    return hidden | (key_at >= lengths.view(-1, 1, 1))


def _attend(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, hidden: torch.Tensor, scale: float
) -> torch.Tensor:
    """In float32: ``[num_seqs, longest, num_heads, head_dim]``."""
    num_seqs, longest, num_heads, head_dim = q.shape
    kv_heads = keys.shape[2]
    group = num_heads // kv_heads
    rows = q.view(num_seqs, longest, kv_heads, group, head_dim).permute(0, 2, 3, 1, 4)
    rows = rows.reshape(num_seqs, kv_heads, group * longest, head_dim)
    scores = torch.matmul(rows, keys.permute(0, 2, 3, 1)) * scale
    scores = scores.view(num_seqs, kv_heads, group, longest, -1)
    weights = scores.masked_fill(hidden.view(num_seqs, 1, 1, longest, -1), _HIDDEN).softmax(dim=-1)
    # nothing was ever written behind a sequence: 0 times NaN would be NaN
    is_read = (~hidden).int().amax(dim=1).view(num_seqs, -1, 1, 1) > 0
    values = torch.where(is_read, values, 0.0)
    weights = weights.view(num_seqs, kv_heads, group * longest, -1)
    attended = torch.matmul(weights, values.permute(0, 2, 1, 3))
    attended = attended.view(num_seqs, kv_heads, group, longest, -1).permute(0, 3, 1, 2, 4)
    return attended.reshape(num_seqs, longest, num_heads, -1)


def _unpadded(attended: torch.Tensor, starts: torch.Tensor, num_tokens: int) -> torch.Tensor:
    """Each token's row again."""
    tokens = torch.arange(num_tokens, dtype=starts.dtype, device=starts.device)
    owner = torch.searchsorted(starts[1:], tokens, right=True).clamp(max=attended.shape[0] - 1)
    places = owner * attended.shape[1] + tokens - starts[owner]
    places = places.clamp(max=attended.shape[0] * attended.shape[1] - 1)
    return attended.flatten(0, 1).index_select(0, places.long())
