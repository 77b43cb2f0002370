"""The cache's writing, and attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.rungs.fakes.checks import EIGHT_BITS, HALVES, alike, need, same_shape

_CACHE_NAMES = frozenset({"auto", "fp8", "fp8_e4m3", "fp8_e5m2"})


def reshape_and_cache_flash(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    kv_cache_dtype: str,
    k_scale: Tensor,
    v_scale: Tensor,
) -> None:
    need(slot_mapping.dtype is torch.int64, f"slot_mapping is {slot_mapping.dtype}")
    need(slot_mapping.shape[0] <= key.shape[0], "more slots than rows")
    need(kv_cache_dtype in _CACHE_NAMES, f"no cache dtype {kv_cache_dtype!r}")
    same_shape(key, value, "value")
    for one in (key_cache, value_cache):
        need(one.dim() == 4, "a cache is [num_blocks, block_size, num_kv_heads, head_size]")
        need(one.shape[2:] == key.shape[1:], f"a cache of {[*one.shape]} for {[*key.shape]}")
        is_eight = kv_cache_dtype != "auto"
        need(one.dtype in EIGHT_BITS or not is_eight, f"{kv_cache_dtype} and a {one.dtype} cache")
        if not is_eight:
            alike(key, one, "a cache")
        need(one.stride(3) == 1 and one.stride(2) == one.shape[3], "a block's tokens have gaps")
    same_shape(key_cache, value_cache, "value_cache")


def varlen_fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor | None,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    seqused_k: Tensor | None,
    leftpad_k: Tensor | None,
    block_table: Tensor | None,
    alibi_slopes: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    p_dropout: float,
    q_scale: Tensor | None,
    k_scale: Tensor | None,
    v_scale: Tensor | None,
    softmax_scale: float,
    softmax_sink: Tensor | None,
    zero_tensors: bool,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    return_softmax: bool,
    gen: Any,
    num_splits: int | None,
    mix_batch: bool,
    splits_per_seq: Tensor | None,
    work_list: Tensor | None,
) -> list[Tensor]:
    need(q.dtype in HALVES, f"q is {q.dtype}: the kernels are float16 and bfloat16")
    need(q.dim() == 3, "q is not [num_tokens, num_heads, head_size]")
    need(k.dtype is v.dtype, "k and v differ in dtype")
    need(k.dtype is q.dtype or k.dtype in EIGHT_BITS, f"a {k.dtype} cache for {q.dtype}")
    for one, what in ((q, "q"), (k, "k"), (v, "v")):
        need(one.stride(-1) == 1, f"{what}'s last axis is not contiguous")
        step = one.element_size()
        need(
            all(s * step % 16 == 0 for s in one.stride()[:-1]), f"{what} is not aligned to 16 bytes"
        )
    need(q.shape[1] % k.shape[-2] == 0, "KV heads do not divide the heads")
    for counts, what in ((cu_seqlens_q, "cu_seqlens_q"), (cu_seqlens_k, "cu_seqlens_k")):
        need(counts.dtype is torch.int32 and counts.is_contiguous(), f"{what} is no row of int32")
    batch = cu_seqlens_q.shape[0] - 1
    if block_table is not None:
        need(k.dim() == 4, "a paged k is [num_blocks, block_size, num_kv_heads, head_size]")
        need(k.shape[1] % 16 == 0, f"block_size {k.shape[1]} is no multiple of 16")
        need(block_table.dtype is torch.int32, f"block_table is {block_table.dtype}")
        need(block_table.shape[0] == batch, "block_table has another number of sequences")
        need(seqused_k is not None, "a paged cache needs seqused_k")
    if seqused_k is not None:
        need(seqused_k.dtype is torch.int32, f"seqused_k is {seqused_k.dtype}")
        need(seqused_k.shape[0] == batch, "seqused_k has another number of sequences")
    need(alibi_slopes is None and leftpad_k is None, "the kernels pass over what they are given")
    need(softcap <= 0, "softcap is taken and not applied")
    made = torch.empty_like(q) if out is None else out
    same_shape(q, made, "out")
    alike(q, made, "out")
    return [made, q.new_empty(q.shape[:2], dtype=torch.float32)]
