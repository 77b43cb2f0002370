"""Rotation by position."""

from __future__ import annotations

from dougong_triton_kernels.kernels.language import constexpr, jit, rounded, tensor, tl


@jit
def rotate_heads(
    x_ptr: tensor,
    heads: tensor,
    head_stride: tensor,
    cos: tensor,
    sin: tensor,
    pair: tensor,
    is_pair: tensor,
    HALF: constexpr,
    NUM_HEADS: constexpr,
    IS_NEOX: constexpr,
    INTERPRETED: constexpr,
) -> None:
    """Some heads of one token, in place: both halves are loaded before either is stored."""
    if IS_NEOX:
        first = pair
        second = pair + HALF
    else:
        first = 2 * pair
        second = 2 * pair + 1
    base = x_ptr + heads[:, None] * head_stride
    is_in = (heads < NUM_HEADS)[:, None] & is_pair[None, :]
    x = tl.load(base + first[None, :], mask=is_in, other=0.0).to(tl.float32)
    y = tl.load(base + second[None, :], mask=is_in, other=0.0).to(tl.float32)
    turned_x = rounded(x * cos[None, :] - y * sin[None, :], x_ptr.dtype.element_ty, INTERPRETED)
    turned_y = rounded(y * cos[None, :] + x * sin[None, :], x_ptr.dtype.element_ty, INTERPRETED)
    tl.store(base + first[None, :], turned_x, mask=is_in)
    tl.store(base + second[None, :], turned_y, mask=is_in)


@jit
def rotary_kernel(
    position_ptr: tensor,
    cache_ptr: tensor,
    q_ptr: tensor,
    k_ptr: tensor,
    cache_stride: tensor,
    q_token: tensor,
    q_head: tensor,
    k_token: tensor,
    k_head: tensor,
    Q_HEADS: constexpr,
    K_HEADS: constexpr,
    HALF: constexpr,
    HALF_BLOCK: constexpr,
    HEAD_BLOCK: constexpr,
    IS_NEOX: constexpr,
    INTERPRETED: constexpr,
) -> None:
    """One token and ``HEAD_BLOCK`` of its heads; blocks of keys come after those of queries."""
    token = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    pair = tl.arange(0, HALF_BLOCK)
    is_pair = pair < HALF
    position = tl.load(position_ptr + token).to(tl.int64)
    row = cache_ptr + position * cache_stride
    cos = tl.load(row + pair, mask=is_pair, other=0.0).to(tl.float32)
    sin = tl.load(row + HALF + pair, mask=is_pair, other=0.0).to(tl.float32)
    lane = tl.arange(0, HEAD_BLOCK)
    q_blocks = (Q_HEADS + HEAD_BLOCK - 1) // HEAD_BLOCK
    if block < q_blocks:
        heads = block * HEAD_BLOCK + lane
        rotate_heads(
            q_ptr + token * q_token,
            heads,
            q_head,
            cos,
            sin,
            pair,
            is_pair,
            HALF,
            Q_HEADS,
            IS_NEOX,
            INTERPRETED,
        )
    else:
        heads = (block - q_blocks) * HEAD_BLOCK + lane
        rotate_heads(
            k_ptr + token * k_token,
            heads,
            k_head,
            cos,
            sin,
            pair,
            is_pair,
            HALF,
            K_HEADS,
            IS_NEOX,
            INTERPRETED,
        )
