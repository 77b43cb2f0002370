"""Rotary positions, the paged cache and attention over it."""

from __future__ import annotations

import ctypes

import torch

from dougong.contracts import UnsupportedError
from dougong.cpu.native import abi, calls
from dougong.cpu.native.library import NativeLibrary, dtype_code

_HEAD_DIM_STEP = 16
_HEAD_DIM_MOST = 256


def unsupported_attention(
    *,
    head_dim: int,
    num_heads: int,
    num_kv_heads: int,
    dtype: torch.dtype,
    cache_dtype: torch.dtype,
) -> str | None:
    """Why `bind_paged_attention` would refuse, or ``None``; any block size is taken."""
    if head_dim % _HEAD_DIM_STEP or not 0 < head_dim <= _HEAD_DIM_MOST:
        return f"head_dim={head_dim}; the native attention takes multiples of 16 up to 256"
    if num_kv_heads < 1 or num_heads % num_kv_heads:
        return f"{num_heads} query heads cannot be shared evenly by {num_kv_heads} KV heads"
    pairs = [(dtype, dtype), (torch.float32, torch.bfloat16)]
    if dtype not in abi.DTYPE_CODES or (dtype, cache_dtype) not in pairs:
        return (
            f"queries of {dtype} with a cache of {cache_dtype}; the native attention takes "
            f"float32 or bfloat16 for both, and float32 queries with a bfloat16 cache"
        )
    return None


def attention_workspace_bytes(
    library: NativeLibrary,
    *,
    head_dim: int,
    num_heads: int,
    num_kv_heads: int,
    dtype: torch.dtype,
    cache_dtype: torch.dtype,
) -> int:
    """Bytes that attention keeps beside its arguments, at most, whatever the batch and lengths.

    All layers of one ``dtype`` and ``cache_dtype`` share them: count the largest, not the sum.

    Args:
        library: The kernels; memory grows with its ``num_threads``.
        head_dim: As for `unsupported_attention`, which has found nothing; so are the others.
        num_heads: Query heads.
        num_kv_heads: Heads of the cache.
        dtype: Of ``q`` and ``out``.
        cache_dtype: Of the cache.
    """
    descriptor = abi.AttentionDesc(
        head_dim=head_dim,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        dtype=dtype_code(dtype, "query"),
        cache_dtype=dtype_code(cache_dtype, "cache"),
        num_threads=library.num_threads,
    )
    num_bytes = ctypes.c_int64()
    library.c.dg_attention_workspace(ctypes.byref(descriptor), ctypes.byref(num_bytes))
    return num_bytes.value


def bind_rope(
    library: NativeLibrary,
    cos_sin: torch.Tensor,
    *,
    head_dim: int,
    num_heads: int,
    num_kv_heads: int,
    dtype: torch.dtype,
    interleaved: bool = False,
) -> calls.RopeCall:
    """Rotate the first ``rotary_dim`` elements of each head, in float32, rounded once.

    Args:
        library: The kernels.
        cos_sin: Contiguous float32 ``[max_position, rotary_dim]``: the cosines of all
            frequencies, then the sines. Every position must be below ``max_position``.
        head_dim: Elements of a head; at least ``rotary_dim``.
        num_heads: Query heads.
        num_kv_heads: Key heads.
        dtype: Of ``q`` and ``k``: float32 or bfloat16.
        interleaved: Rotate neighbours (2i, 2i + 1) instead of halves (i, i + rotary_dim / 2).
    """
    descriptor = _rope(library, cos_sin, head_dim, num_heads, num_kv_heads, dtype, interleaved)
    return calls.RopeCall(library.c.dg_rope, descriptor, cos_sin)


def bind_write_kv(
    library: NativeLibrary,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    *,
    dtype: torch.dtype,
) -> calls.WriteKVCall:
    """Write into ``[num_blocks, num_kv_heads, block_size, head_dim]``, last axis contiguous.

    Slot ``s`` is token ``s % block_size`` of block ``s // block_size``; a negative slot is not
    written. Rows of ``dtype`` float32 may go into a bfloat16 cache.
    """
    descriptor = _cache(library, k_cache, v_cache, dtype)
    return calls.WriteKVCall(library.c.dg_write_kv, descriptor)


def bind_rope_and_write_kv(
    library: NativeLibrary,
    cos_sin: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    *,
    num_heads: int,
    dtype: torch.dtype,
    interleaved: bool = False,
) -> calls.RopeWriteKVCall:
    """`bind_rope` and `bind_write_kv` in one pass; the same results."""
    num_kv_heads, head_dim = k_cache.shape[1], k_cache.shape[3]
    rope = _rope(library, cos_sin, head_dim, num_heads, num_kv_heads, dtype, interleaved)
    cache = _cache(library, k_cache, v_cache, dtype)
    function = library.c.dg_rope_and_write_kv
    return calls.RopeWriteKVCall(function, rope, cache, cos_sin)


def bind_paged_attention(
    library: NativeLibrary,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    *,
    num_heads: int,
    scale: float,
    dtype: torch.dtype,
    sliding_window: int | None = None,
    softcap: float | None = None,
) -> calls.PagedAttentionCall:
    """Causal attention over a paged cache; ``q`` and ``out`` are ``[num_tokens, heads * dim]``.

    A row's result is the same bits whatever the batch, chunk, block size and number of threads.

    Args:
        library: The kernels.
        k_cache: ``[num_blocks, num_kv_heads, block_size, head_dim]``, last axis contiguous, any
            block size; ``head_dim`` a multiple of 16 up to 256.
        v_cache: Like ``k_cache``; its own strides.
        num_heads: Query heads, a multiple of the KV heads; neighbours share one.
        scale: Multiplies the scores.
        dtype: Of ``q`` and ``out``: the cache's, or float32 over a bfloat16 cache.
        sliding_window: Positions a query sees, itself included; ``None``: all before it.
        softcap: Scores become ``softcap * tanh(score / softcap)``; ``None``: they stay.

    Raises:
        UnsupportedError: As `unsupported_attention` says.
    """
    reason = unsupported_attention(
        head_dim=k_cache.shape[3],
        num_heads=num_heads,
        num_kv_heads=k_cache.shape[1],
        dtype=dtype,
        cache_dtype=k_cache.dtype,
    )
    if reason:
        raise UnsupportedError(reason)
    descriptor = abi.AttentionDesc(
        **_cache_fields(k_cache, v_cache),
        sliding_window=sliding_window or 0,
        num_heads=num_heads,
        dtype=dtype_code(dtype, "query"),
        scale=scale,
        softcap=softcap or 0.0,
        num_threads=library.num_threads,
    )
    return calls.PagedAttentionCall(library.c.dg_paged_attention, descriptor)


def _rope(
    library: NativeLibrary,
    cos_sin: torch.Tensor,
    head_dim: int,
    num_heads: int,
    num_kv_heads: int,
    dtype: torch.dtype,
    interleaved: bool,
) -> abi.RopeDesc:
    rotary_dim = cos_sin.shape[1]
    if cos_sin.dtype != torch.float32 or not cos_sin.is_contiguous():
        raise UnsupportedError("the rotary table must be contiguous float32 [positions, rotary]")
    if rotary_dim % 2 or rotary_dim > head_dim:
        raise UnsupportedError(f"rotary_dim={rotary_dim} must be even and at most {head_dim}")
    return abi.RopeDesc(
        cos_sin=cos_sin.data_ptr(),
        rotary_dim=rotary_dim,
        head_dim=head_dim,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        interleaved=interleaved,
        dtype=dtype_code(dtype, "query"),
        num_threads=library.num_threads,
    )


def _cache_fields(k_cache: torch.Tensor, v_cache: torch.Tensor) -> dict[str, int]:
    if k_cache.shape != v_cache.shape or k_cache.dtype != v_cache.dtype:
        raise UnsupportedError("the key and value caches must have one shape and one dtype")
    if k_cache.stride(3) != 1 or v_cache.stride(3) != 1:
        raise UnsupportedError("the last axis of the key and value caches must be contiguous")
    fields = {
        f"{which}_stride_{axis}": cache.stride(index)
        for which, cache in (("k", k_cache), ("v", v_cache))
        for index, axis in enumerate(("block", "head", "token"))
    }
    return fields | {
        "k_cache": k_cache.data_ptr(),
        "v_cache": v_cache.data_ptr(),
        "block_size": k_cache.shape[2],
        "head_dim": k_cache.shape[3],
        "num_kv_heads": k_cache.shape[1],
        "cache_dtype": dtype_code(k_cache.dtype, "cache"),
    }


def _cache(
    library: NativeLibrary, k_cache: torch.Tensor, v_cache: torch.Tensor, dtype: torch.dtype
) -> abi.CacheDesc:
    if k_cache.dtype not in (dtype, torch.bfloat16):
        raise UnsupportedError(f"rows of {dtype} cannot be written into a {k_cache.dtype} cache")
    return abi.CacheDesc(
        **_cache_fields(k_cache, v_cache),
        dtype=dtype_code(dtype, "key"),
        num_threads=library.num_threads,
    )
