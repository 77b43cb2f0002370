"""Keys and values of a step into their slots."""

from __future__ import annotations

from dougong_triton_kernels.kernels.language import constexpr, jit, tensor, tl


@jit
def write_kv_kernel(
    k_ptr: tensor,
    v_ptr: tensor,
    k_cache_ptr: tensor,
    v_cache_ptr: tensor,
    slot_ptr: tensor,
    k_token: tensor,
    k_head: tensor,
    v_token: tensor,
    v_head: tensor,
    k_cache_block: tensor,
    k_cache_slot: tensor,
    k_cache_head: tensor,
    v_cache_block: tensor,
    v_cache_slot: tensor,
    v_cache_head: tensor,
    BLOCK_SIZE: constexpr,
    NUM_HEADS: constexpr,
    HEAD_BLOCK: constexpr,
    DIM: constexpr,
    DIM_BLOCK: constexpr,
) -> None:
    """One token and ``HEAD_BLOCK`` of its heads; a negative slot is padding and stores nothing."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_ptr + token).to(tl.int64)
    if slot >= 0:
        block = slot // BLOCK_SIZE
        place = slot % BLOCK_SIZE
        head = tl.program_id(1) * HEAD_BLOCK + tl.arange(0, HEAD_BLOCK)[:, None]
        dim = tl.arange(0, DIM_BLOCK)[None, :]
        is_in = (head < NUM_HEADS) & (dim < DIM)
        k = tl.load(k_ptr + token * k_token + head * k_head + dim, mask=is_in, other=0.0)
        v = tl.load(v_ptr + token * v_token + head * v_head + dim, mask=is_in, other=0.0)
        k_cache_ptr += block * k_cache_block + place * k_cache_slot
        v_cache_ptr += block * v_cache_block + place * v_cache_slot
        tl.store(k_cache_ptr + head * k_cache_head + dim, k, mask=is_in)
        tl.store(v_cache_ptr + head * v_cache_head + dim, v, mask=is_in)
