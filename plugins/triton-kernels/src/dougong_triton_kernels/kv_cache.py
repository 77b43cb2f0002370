"""Write keys and values into a paged cache."""

from __future__ import annotations

import torch

from dougong_triton_kernels import checks
from dougong_triton_kernels.launching import Launch, run

_HEADS_PER_PROGRAM = 8


def write_kv(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Store a step's keys and values in place; returns at enqueue.

    Args:
        k: ``[num_tokens, num_kv_heads, head_dim]``, last axis contiguous, the others may have gaps.
        v: The same for values.
        k_cache: ``[num_blocks, block_size, num_kv_heads, head_dim]``, of any strides but the
            last: a cache that is stored with heads before tokens comes as a permuted view.
        v_cache: The same for values.
        slot_mapping: int32 or int64 ``[num_tokens]``: token ``s % block_size`` of block
            ``s // block_size``. Rows of a negative slot are padding and are not stored. Two rows
            with one slot: one of them wins. A slot past the cache is not found out.

    Raises:
        TypeError: A dtype.
        ValueError: A shape, device or stride.
    """
    run(plan_write_kv(k, v, k_cache, v_cache, slot_mapping))


def plan_write_kv(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> Launch:
    """What `write_kv` launches."""
    checks.same_kind(k=k, v=v, k_cache=k_cache, v_cache=v_cache)
    checks.shape("k", k, None, None, None)
    num_tokens, num_heads, head_dim = k.shape
    checks.shape("v", v, num_tokens, num_heads, head_dim)
    checks.shape("k_cache", k_cache, None, None, num_heads, head_dim)
    checks.shape("v_cache", v_cache, *k_cache.shape)
    checks.shape("slot_mapping", slot_mapping, num_tokens)
    checks.index("slot_mapping", slot_mapping, *checks.INDEX_DTYPES)
    checks.same_device("k", k, slot_mapping=slot_mapping)
    head_block = min(checks.next_power_of_2(num_heads), _HEADS_PER_PROGRAM)
    return Launch(
        kernel="kv_cache.write_kv_kernel",
        grid=(num_tokens, -(-num_heads // head_block), 1),
        arguments={
            "k_ptr": k,
            "v_ptr": v,
            "k_cache_ptr": k_cache,
            "v_cache_ptr": v_cache,
            "slot_ptr": slot_mapping,
            "k_token": k.stride(0),
            "k_head": k.stride(1),
            "v_token": v.stride(0),
            "v_head": v.stride(1),
            "k_cache_block": k_cache.stride(0),
            "k_cache_slot": k_cache.stride(1),
            "k_cache_head": k_cache.stride(2),
            "v_cache_block": v_cache.stride(0),
            "v_cache_slot": v_cache.stride(1),
            "v_cache_head": v_cache.stride(2),
        },
        constants={
            "BLOCK_SIZE": k_cache.shape[1],
            "NUM_HEADS": num_heads,
            "HEAD_BLOCK": head_block,
            "DIM": head_dim,
            "DIM_BLOCK": checks.next_power_of_2(head_dim),
        },
        options={"num_warps": 1 if head_block * head_dim <= 1024 else 2, "num_stages": 1},
    )
