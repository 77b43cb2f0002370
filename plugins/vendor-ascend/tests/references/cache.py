"""Writing the paged KV cache.

Two storages exist. *ND* is ``[num_blocks, block_size, num_kv_heads, head_size]``. *NZ* cuts each
token's row into pieces of 16 elements and keeps the pieces of one block together:
``[num_blocks, num_kv_heads * head_size // 16, block_size, 16]``.
"""

from __future__ import annotations

import torch

from tests.references.refusals import HALVES, require, require_contiguous, require_dtype

PIECE = 16
"""Elements of one piece of NZ, in two-byte dtypes."""


def npu_scatter_pa_kv_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    compress_lens: torch.Tensor | None = None,
    compress_seq_offsets: torch.Tensor | None = None,
    seq_lens: torch.Tensor | None = None,
    cache_mode: str | None = "PA_NZ",
) -> None:
    """Write keys and values into their slots.

    The default mode treats the memory of an ND cache as NZ: nothing is refused, and what is read
    back as ND is wrong. So it is on the device, and so it is here.
    """
    op = "npu_scatter_pa_kv_cache"
    unused = (compress_lens, compress_seq_offsets, seq_lens)
    require(all(one is None for one in unused), op, "compressed caches have no reference")
    require(cache_mode in ("Norm", "PA_NZ"), op, f"cache_mode {cache_mode!r} is unknown")
    require_contiguous(op, key=key, value=value, slot_mapping=slot_mapping)
    for rows, cache in ((key, key_cache), (value, value_cache)):
        require_dtype(op, HALVES, rows=rows, cache=cache)
        _write(op, rows, cache, slot_mapping, is_nz=cache_mode == "PA_NZ")


def npu_reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_indices: torch.Tensor,
) -> None:
    """``atb::_npu_reshape_and_cache``: ND or NZ, as the cache's shape says."""
    op = "_npu_reshape_and_cache"
    require_contiguous(op, key=key, value=value, slot_indices=slot_indices)
    require(slot_indices.dtype == torch.int32, op, f"slot_indices are {slot_indices.dtype}")
    for rows, cache in ((key, key_cache), (value, value_cache)):
        require_dtype(op, HALVES, rows=rows, cache=cache)
        is_nz = is_nz_cache(cache, rows.shape[-2], rows.shape[-1])
        _write(op, rows, cache, slot_indices, is_nz=is_nz)


def npu_format_cast(
    input: torch.Tensor,
    acl_format: int,
    *,
    customize_dtype: int | None = None,
    input_dtype: int | None = None,
) -> torch.Tensor:
    """Another order in memory, same values. On host memory the order stays as it is."""
    op = "npu_format_cast"
    require(customize_dtype is None and input_dtype is None, op, "dtypes have no reference")
    require(acl_format in (0, 2, 29), op, f"format {acl_format} has no reference")
    is_nz = acl_format == 29
    require(not (is_nz and input.dtype == torch.float32), op, "float32 has no NZ form")
    require(not is_nz or input.dim() >= 2, op, "NZ needs two axes")
    return input.clone()


def is_nz_cache(cache: torch.Tensor, num_kv_heads: int, head_size: int) -> bool:
    """Which of the two storages the cache's shape is; ``num_kv_heads`` of ``head_size``."""
    nd = tuple(cache.shape[2:]) == (num_kv_heads, head_size)
    pieces = num_kv_heads * head_size // PIECE
    nz = cache.dim() == 4 and (cache.shape[1], cache.shape[3]) == (pieces, PIECE)
    require(nd or nz, "KV cache", f"{tuple(cache.shape)} is neither ND nor NZ")
    return not nd


def as_rows(cache: torch.Tensor, num_kv_heads: int, head_size: int) -> torch.Tensor:
    """A cache as ``[num_blocks, block_size, num_kv_heads, head_size]``, copied where it is NZ."""
    if not is_nz_cache(cache, num_kv_heads, head_size):
        return cache
    num_blocks, _, block_size, _ = cache.shape
    return cache.permute(0, 2, 1, 3).reshape(num_blocks, block_size, num_kv_heads, head_size)


def _write(
    op: str, rows: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor, *, is_nz: bool
) -> None:
    require(slots.dtype in (torch.int32, torch.int64), op, f"slots are {slots.dtype}")
    fits = slots.dim() == 1 and slots.shape[0] == rows.shape[0]
    require(fits, op, f"{slots.shape[0]} slots for {rows.shape[0]} rows: one each, no padding")
    require(rows.dim() == 3, op, f"rows {tuple(rows.shape)} must be [num_tokens, heads, head_size]")
    if slots.device.type == "cpu":  # on a device that runs later this would wait for it
        _require_good_slots(op, slots, cache, is_nz=is_nz)
    width = rows.shape[1] * rows.shape[2]
    if not is_nz:
        require(tuple(cache.shape[2:]) == tuple(rows.shape[1:]), op, "cache and rows differ")
        cache.view(-1, *rows.shape[1:]).index_put_((slots,), rows)
        return
    require(width % PIECE == 0, op, f"a row of {width}; NZ takes multiples of {PIECE}")
    block_size = cache.shape[2] if cache.shape[-1] == PIECE else cache.shape[1]
    pieces = cache.view(-1, width // PIECE, block_size, PIECE).permute(0, 2, 1, 3)
    blocks = slots.div(block_size, rounding_mode="floor")
    offsets = slots - blocks * block_size
    pieces.index_put_((blocks, offsets), rows.reshape(rows.shape[0], -1, PIECE))


def _require_good_slots(op: str, slots: torch.Tensor, cache: torch.Tensor, *, is_nz: bool) -> None:
    block_size = cache.shape[2] if is_nz and cache.shape[-1] == PIECE else cache.shape[1]
    given = slots.tolist()
    is_inside = all(0 <= slot < cache.shape[0] * block_size for slot in given)
    require(is_inside, op, f"a slot lies outside of the cache: {given}")
    require(len(set(given)) == len(given), op, f"slots must be unique: {given}")
