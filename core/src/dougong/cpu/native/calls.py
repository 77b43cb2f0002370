"""Kernels bound to their fixed arguments: made once at load, called with what a step brings.

A call checks nothing. Its tensors must have the shapes and dtypes that were bound, a contiguous
last axis, and live on the CPU; the other axis may be strided. Nothing is allocated.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch

_CFunction = Callable[..., None]


class _Bound:
    """A C function with the address of its descriptor, and what must outlive it."""

    __slots__ = ("_descriptor", "_function", "_keep")

    def __init__(self, function: _CFunction, descriptor: ctypes.Structure, *keep: object) -> None:
        self._function = function
        self._descriptor = ctypes.addressof(descriptor)
        self._keep = (descriptor, *keep)


class LinearCall(_Bound):
    """``out = x W^T + bias``, or ``act(x G^T) * (x U^T)``; see `NativeKernels.bind_linear`."""

    __slots__ = ()

    def __call__(self, x: torch.Tensor, out: torch.Tensor) -> None:
        """``x`` ``[num_tokens, K]``, ``out`` ``[num_tokens, N]``."""
        self._function(
            self._descriptor,
            x.data_ptr(),
            x.stride(0),
            x.shape[0],
            out.data_ptr(),
            out.stride(0),
        )


class RMSNormCall(_Bound):
    """``out = norm(x)``; ``out`` may be ``x``."""

    __slots__ = ()

    def __call__(self, x: torch.Tensor, out: torch.Tensor) -> None:
        """``x`` and ``out`` ``[num_tokens, hidden]``."""
        self._function(
            self._descriptor,
            x.data_ptr(),
            x.stride(0),
            None,
            0,
            x.shape[0],
            out.data_ptr(),
            out.stride(0),
        )


class AddRMSNormCall(_Bound):
    """``residual += x``, rounded to its dtype; ``out = norm(residual)``; ``out`` may be ``x``."""

    __slots__ = ()

    def __call__(self, x: torch.Tensor, residual: torch.Tensor, out: torch.Tensor) -> None:
        """All three ``[num_tokens, hidden]``."""
        self._function(
            self._descriptor,
            x.data_ptr(),
            x.stride(0),
            residual.data_ptr(),
            residual.stride(0),
            x.shape[0],
            out.data_ptr(),
            out.stride(0),
        )


class RopeCall(_Bound):
    """Rotates ``q`` and ``k`` in place."""

    __slots__ = ()

    def __call__(self, q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor) -> None:
        """``q`` ``[num_tokens, num_heads * head_dim]`` (or with its heads apart), ``k`` alike."""
        self._function(
            self._descriptor,
            q.data_ptr(),
            q.stride(0),
            k.data_ptr(),
            k.stride(0),
            positions.data_ptr(),
            positions.shape[0],
        )


class WriteKVCall(_Bound):
    """Stores new keys and values in their slots; slot ``-1`` is passed over."""

    __slots__ = ()

    def __call__(self, k: torch.Tensor, v: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """``k`` and ``v`` ``[num_tokens, num_kv_heads * head_dim]``, int64 ``slot_mapping``."""
        self._function(
            self._descriptor,
            k.data_ptr(),
            k.stride(0),
            v.data_ptr(),
            v.stride(0),
            slot_mapping.data_ptr(),
            slot_mapping.shape[0],
        )


class RopeWriteKVCall(_Bound):
    """`RopeCall`, then `WriteKVCall` of the rotated keys, in one pass over the tokens."""

    __slots__ = ("_cache",)

    def __init__(
        self,
        function: _CFunction,
        rope: ctypes.Structure,
        cache: ctypes.Structure,
        *keep: object,
    ) -> None:
        super().__init__(function, rope, cache, *keep)
        self._cache = ctypes.addressof(cache)

    def __call__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        positions: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None:
        """Shapes as in the two calls it stands for."""
        self._function(
            self._descriptor,
            self._cache,
            q.data_ptr(),
            q.stride(0),
            k.data_ptr(),
            k.stride(0),
            v.data_ptr(),
            v.stride(0),
            positions.data_ptr(),
            slot_mapping.data_ptr(),
            positions.shape[0],
        )


class PagedAttentionCall(_Bound):
    """Causal attention of the last positions of each sequence over its cached keys."""

    __slots__ = ()

    def __call__(
        self,
        q: torch.Tensor,
        block_table: torch.Tensor,
        seq_lens: torch.Tensor,
        cu_seqlens_q: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        """int32 ``block_table`` ``[num_seqs, any]``, ``seq_lens`` and ``cu_seqlens_q``.

        Rows ``cu_seqlens_q[i]`` to ``cu_seqlens_q[i + 1]`` of ``q`` are the last positions of
        sequence ``i``, whose keys, these included, are already in the cache. Sequences without
        rows are passed over; rows beyond the last are not written.
        """
        self._function(
            self._descriptor,
            q.data_ptr(),
            q.stride(0),
            block_table.data_ptr(),
            block_table.stride(0),
            seq_lens.data_ptr(),
            cu_seqlens_q.data_ptr(),
            seq_lens.shape[0],
            out.data_ptr(),
            out.stride(0),
        )
