"""Attention over a paged cache: one query per sequence, or several.

Every kernel walks a sequence's tokens in tiles and keeps a running maximum, sum and product (online
softmax), in float32. A tile takes its tokens from wherever the block table says, so tile and block
size are independent.

Operands of ``tl.dot`` have the storage dtype. Under the interpreter (triton 3.7.1) a ``tl.dot`` of
bfloat16 multiplies bit patterns and says nothing; ``INTERPRETED`` casts operands to float32 there,
which changes none of them, and probabilities are rounded to the storage dtype before in either
case. So what the interpreter shows is everything but the order of the sums inside ``tl.dot``.
"""

from __future__ import annotations

from dougong_triton_kernels.kernels.language import constexpr, jit, rounded, tanh, tensor, tl


@jit
def load_tile(
    cache_ptr: tensor,
    table_ptr: tensor,
    token: tensor,
    is_token: tensor,
    dim: tensor,
    is_dim: tensor,
    block_stride: tensor,
    slot_stride: tensor,
    BLOCK_SIZE: constexpr,
) -> tensor:
    """``[tokens, dims]`` of one KV head; zeros where there is no token, whatever lies there."""
    block = tl.load(table_ptr + token // BLOCK_SIZE, mask=is_token, other=0).to(tl.int64)
    row = block * block_stride + (token % BLOCK_SIZE) * slot_stride
    mask = is_token[:, None] & is_dim[None, :]
    return tl.load(cache_ptr + row[:, None] + dim[None, :], mask=mask, other=0.0)


@jit
def attend(
    q: tensor,
    k: tensor,
    v: tensor,
    is_seen: tensor,
    scale: tensor,
    soft_cap: tensor,
    largest: tensor,
    total: tensor,
    product: tensor,
    HAS_CAP: constexpr,
    INTERPRETED: constexpr,
) -> tensor:
    """One tile more: ``(largest, total, product)`` of the softmax so far.

    Args:
        q: ``[rows, dims]``.
        k: ``[tokens, dims]``.
        v: ``[tokens, dims]``.
        is_seen: ``[rows, tokens]``.
        scale: Factor of ``q @ k``.
        soft_cap: Scores become ``cap * tanh(score / cap)``.
        largest: float32 ``[rows]``: largest score; -1e30 before the first.
        total: float32 ``[rows]``: sum of exponentials.
        product: float32 ``[rows, dims]``: exponentials times values.
        HAS_CAP: There is a cap.
        INTERPRETED: Operands of ``tl.dot`` in float32.
    """
    key = tl.trans(k)
    if INTERPRETED:
        scores = tl.dot(q.to(tl.float32), key.to(tl.float32), input_precision="ieee")
    else:
        scores = tl.dot(q, key, input_precision="ieee")
    scores = scores.to(tl.float32) * scale
    if HAS_CAP:
        scores = soft_cap * tanh(scores / soft_cap)
    scores = tl.where(is_seen, scores, -1.0e30)
    now = tl.maximum(largest, tl.max(scores, 1))
    # A row that sees nothing of this tile, nor of one before, has all its scores at the maximum.
    share = tl.where(is_seen, tl.exp(scores - now[:, None]), 0.0)
    shrink = tl.exp(largest - now)
    total = total * shrink + tl.sum(share, 1)
    weight = rounded(share, v.dtype, INTERPRETED)
    if INTERPRETED:
        part = tl.dot(weight.to(tl.float32), v.to(tl.float32), input_precision="ieee")
    else:
        part = tl.dot(weight, v, input_precision="ieee")
    product = product * shrink[:, None] + part.to(tl.float32)
    return now, total, product


@jit
def paged_decode_kernel(
    q_ptr: tensor,
    k_ptr: tensor,
    v_ptr: tensor,
    table_ptr: tensor,
    length_ptr: tensor,
    out_ptr: tensor,
    stats_ptr: tensor,
    scale: tensor,
    soft_cap: tensor,
    window: tensor,
    q_row: tensor,
    q_head: tensor,
    k_block: tensor,
    k_slot: tensor,
    k_head: tensor,
    v_block: tensor,
    v_slot: tensor,
    v_head: tensor,
    table_row: tensor,
    out_row: tensor,
    out_head: tensor,
    out_split: tensor,
    GROUP: constexpr,
    GROUP_BLOCK: constexpr,
    DIM: constexpr,
    DIM_BLOCK: constexpr,
    BLOCK_SIZE: constexpr,
    TILE: constexpr,
    SPLITS: constexpr,
    HAS_CAP: constexpr,
    HAS_WINDOW: constexpr,
    INTERPRETED: constexpr,
) -> None:
    """One sequence, one KV head with the query heads that share it, and one part of the tokens.

    With one part the result is stored; with several, what `combine_splits_kernel` needs: the
    product, undivided, in float32, and in ``stats`` ``[rows, heads, splits, 2]`` largest and total.
    """
    row = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    length = tl.load(length_ptr + row)
    start = 0
    if HAS_WINDOW:
        start = tl.maximum(length - window, 0) // TILE * TILE
    end = length
    if SPLITS > 1:
        tiles = (length - start + TILE - 1) // TILE
        share = (tiles + SPLITS - 1) // SPLITS * TILE
        start = start + split * share
        end = tl.minimum(start + share, length)
    member = tl.arange(0, GROUP_BLOCK)
    head = kv_head * GROUP + member
    dim = tl.arange(0, DIM_BLOCK)
    is_dim = dim < DIM
    is_out = (member < GROUP)[:, None] & is_dim[None, :]
    q_at = q_ptr + row * q_row + head[:, None] * q_head + dim[None, :]
    q = tl.load(q_at, mask=is_out, other=0.0)
    k_ptr += kv_head * k_head
    v_ptr += kv_head * v_head
    table_ptr += row * table_row
    largest = tl.full([GROUP_BLOCK], -1.0e30, tl.float32)
    total = tl.zeros([GROUP_BLOCK], tl.float32)
    product = tl.zeros([GROUP_BLOCK, DIM_BLOCK], tl.float32)
    for first in range(start, end, TILE):
        token = first + tl.arange(0, TILE)
        is_token = token < end
        if HAS_WINDOW:
            is_token = is_token & (token >= length - window)
        k = load_tile(k_ptr, table_ptr, token, is_token, dim, is_dim, k_block, k_slot, BLOCK_SIZE)
        v = load_tile(v_ptr, table_ptr, token, is_token, dim, is_dim, v_block, v_slot, BLOCK_SIZE)
        is_seen = (member < GROUP_BLOCK)[:, None] & is_token[None, :]
        largest, total, product = attend(
            q, k, v, is_seen, scale, soft_cap, largest, total, product, HAS_CAP, INTERPRETED
        )
    out_at = out_ptr + row * out_row + head[:, None] * out_head + split * out_split + dim[None, :]
    if SPLITS == 1:
        # A row of padding has no token: it gets zeros.
        product = product / tl.where(total > 0.0, total, 1.0)[:, None]
        result = rounded(product, out_ptr.dtype.element_ty, INTERPRETED)
        tl.store(out_at, result, mask=is_out)
    else:
        tl.store(out_at, product, mask=is_out)
        heads = tl.num_programs(1) * GROUP
        stats_at = stats_ptr + ((row * heads + head) * SPLITS + split) * 2
        tl.store(stats_at, largest, mask=member < GROUP)
        tl.store(stats_at + 1, total, mask=member < GROUP)


@jit
def combine_splits_kernel(
    product_ptr: tensor,
    stats_ptr: tensor,
    out_ptr: tensor,
    out_row: tensor,
    out_head: tensor,
    NUM_HEADS: constexpr,
    DIM: constexpr,
    DIM_BLOCK: constexpr,
    SPLITS: constexpr,
    SPLIT_BLOCK: constexpr,
    INTERPRETED: constexpr,
) -> None:
    """One row and head: the parts of a split decode, weighed by their largest scores."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    split = tl.arange(0, SPLIT_BLOCK)
    dim = tl.arange(0, DIM_BLOCK)
    is_split = split < SPLITS
    is_dim = dim < DIM
    part = (row * NUM_HEADS + head) * SPLITS + split
    largest = tl.load(stats_ptr + part * 2, mask=is_split, other=-1.0e30)
    total = tl.load(stats_ptr + part * 2 + 1, mask=is_split, other=0.0)
    mask = is_split[:, None] & is_dim[None, :]
    product = tl.load(product_ptr + part[:, None] * DIM + dim[None, :], mask=mask, other=0.0)
    weight = tl.exp(largest - tl.max(largest, 0))
    total = tl.sum(total * weight, 0)
    result = tl.sum(product * weight[:, None], 0) / tl.where(total > 0.0, total, 1.0)
    out_at = out_ptr + row * out_row + head * out_head + dim
    result = rounded(result, out_ptr.dtype.element_ty, INTERPRETED)
    tl.store(out_at, result, mask=is_dim)


@jit
def paged_attention_kernel(
    q_ptr: tensor,
    k_ptr: tensor,
    v_ptr: tensor,
    table_ptr: tensor,
    length_ptr: tensor,
    start_ptr: tensor,
    out_ptr: tensor,
    scale: tensor,
    soft_cap: tensor,
    window: tensor,
    q_token: tensor,
    q_head: tensor,
    k_block: tensor,
    k_slot: tensor,
    k_head: tensor,
    v_block: tensor,
    v_slot: tensor,
    v_head: tensor,
    table_row: tensor,
    out_token: tensor,
    out_head: tensor,
    GROUP: constexpr,
    DIM: constexpr,
    DIM_BLOCK: constexpr,
    BLOCK_SIZE: constexpr,
    ROWS: constexpr,
    TILE: constexpr,
    HAS_CAP: constexpr,
    HAS_WINDOW: constexpr,
    INTERPRETED: constexpr,
) -> None:
    """``ROWS`` rows of one sequence and one KV head.

    A row is a query token with one of the ``GROUP`` heads that share the KV head: row ``r`` is
    token ``r // GROUP``, head ``r % GROUP``. So every group size fills the tile, and keys are
    loaded once for the group. A sequence's queries are its last tokens.
    """
    first_row = tl.program_id(0) * ROWS
    kv_head = tl.program_id(1)
    sequence = tl.program_id(2)
    query_start = tl.load(start_ptr + sequence)
    num_queries = tl.load(start_ptr + sequence + 1) - query_start
    if first_row < num_queries * GROUP:
        length = tl.load(length_ptr + sequence)
        context = length - num_queries
        r = first_row + tl.arange(0, ROWS)
        is_row = r < num_queries * GROUP
        query = r // GROUP
        head = kv_head * GROUP + r % GROUP
        position = context + query
        start = 0
        if HAS_WINDOW:
            start = tl.maximum(context + first_row // GROUP - window + 1, 0) // TILE * TILE
        end = tl.minimum(context + (first_row + ROWS - 1) // GROUP + 1, length)
        dim = tl.arange(0, DIM_BLOCK)
        is_dim = dim < DIM
        is_out = is_row[:, None] & is_dim[None, :]
        q_row = (query_start + query).to(tl.int64)
        q_at = q_ptr + q_row[:, None] * q_token + head[:, None] * q_head + dim[None, :]
        q = tl.load(q_at, mask=is_out, other=0.0)
        k_ptr += kv_head * k_head
        v_ptr += kv_head * v_head
        table_ptr += sequence.to(tl.int64) * table_row
        largest = tl.full([ROWS], -1.0e30, tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        product = tl.zeros([ROWS, DIM_BLOCK], tl.float32)
        for first in range(start, end, TILE):
            token = first + tl.arange(0, TILE)
            is_token = token < end
            k = load_tile(
                k_ptr, table_ptr, token, is_token, dim, is_dim, k_block, k_slot, BLOCK_SIZE
            )
            v = load_tile(
                v_ptr, table_ptr, token, is_token, dim, is_dim, v_block, v_slot, BLOCK_SIZE
            )
            is_seen = (token[None, :] <= position[:, None]) & is_token[None, :]
            if HAS_WINDOW:
                is_seen = is_seen & (token[None, :] > position[:, None] - window)
            largest, total, product = attend(
                q, k, v, is_seen, scale, soft_cap, largest, total, product, HAS_CAP, INTERPRETED
            )
        product = product / tl.where(total > 0.0, total, 1.0)[:, None]
        out_at = out_ptr + q_row[:, None] * out_token + head[:, None] * out_head + dim[None, :]
        result = rounded(product, out_ptr.dtype.element_ty, INTERPRETED)
        tl.store(out_at, result, mask=is_out)
