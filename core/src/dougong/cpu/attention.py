"""The native attention backend: paged, any mix of prefill and decode in one call."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dougong.contracts import (
    AttentionBackend,
    AttentionImpl,
    AttentionLimits,
    AttentionMetadataBuilder,
    AttentionRequest,
    CommonAttentionMetadata,
    KVBuffer,
    KVCacheSpec,
    KVLayout,
    Support,
)
from dougong.cpu import native
from dougong.cpu.native_library import get_library
from dougong.cpu.platform import NATIVE_LIBRARY

_BLOCK_SIZES = (16, 32, 64, 128)

# Sizes of the kernel's working memory, as csrc/attention.cpp has them; a test compares.
_TARGET_ROWS = 96
_ROW_STATE_FLOATS = 17
_TILE = 64
_MOST_ROWS = 6
_SPLIT_BYTES = 8 << 20
_PARTS_PER_THREAD = 4
_PAGE_BYTES = 4096
_FLOAT32_BYTES = 4


class _Builder(AttentionMetadataBuilder):
    """The kernel reads the common metadata as it is."""

    def build(self, common: CommonAttentionMetadata) -> CommonAttentionMetadata:
        return common


class NativeAttentionImpl(AttentionImpl):
    """Kernels bound to this layer's buffers at the first step that brings them.

    The buffers are not kept: who allocated them may let them go before others take their place.
    """

    def __init__(self, request: AttentionRequest, scale: float) -> None:
        super().__init__(request, scale)
        self._dtype = getattr(torch, request.dtype)
        self._k_cache: Callable[[], torch.Tensor | None] = _nothing
        self._v_cache: Callable[[], torch.Tensor | None] = _nothing
        self._write: Any = None
        self._attend: Any = None

    def write_kv(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        slot_mapping: torch.Tensor,
    ) -> None:
        """See `AttentionImpl`."""
        k_cache, v_cache = kv_cache
        if k_cache is not self._k_cache() or v_cache is not self._v_cache():
            self._bind(k_cache, v_cache)
        self._write(k, v, slot_mapping)

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        metadata: CommonAttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        """See `AttentionImpl`; keys and values are read from the cache."""
        k_cache, v_cache = kv_cache
        if k_cache is not self._k_cache() or v_cache is not self._v_cache():
            self._bind(k_cache, v_cache)
        self._attend(q, metadata.block_table, metadata.seq_lens, metadata.cu_seqlens_q, out)

    def _bind(self, k_cache: torch.Tensor, v_cache: torch.Tensor) -> None:
        library = get_library()
        assert not isinstance(library, native.NotBuilt), (
            "the plan names it where import_kernels has loaded it"
        )
        self._write = native.bind_write_kv(library, k_cache, v_cache, dtype=self._dtype)
        self._attend = native.bind_paged_attention(
            library,
            k_cache,
            v_cache,
            num_heads=self.request.num_heads,
            scale=self.scale,
            dtype=self._dtype,
            sliding_window=self.request.sliding_window,
            softcap=self.request.soft_cap,
        )
        # By weak reference, so that a buffer at the place of one that is gone is not taken for it.
        self._k_cache, self._v_cache = weakref.ref(k_cache), weakref.ref(v_cache)


class NativeAttentionBackend(AttentionBackend):
    """Compiled for this processor; `CpuPlatform.import_kernels` says where no compiler is."""

    name = "cpu/native"
    library = NATIVE_LIBRARY
    limits = AttentionLimits(
        dtypes=frozenset({"float32", "bfloat16"}),
        kv_dtypes=frozenset({"float32", "bfloat16"}),
        head_size_multiple=16,
        max_head_size=256,
        block_sizes=_BLOCK_SIZES,
        sliding_window=True,
        soft_cap=True,
    )

    def supports(self, request: AttentionRequest) -> Support:
        """As `limits` says, but that no cache is wider than the queries."""
        if not (verdict := self.limits.check(request)):
            return verdict
        reason = native.unsupported_attention(
            head_dim=request.head_dim,
            num_heads=request.num_heads,
            num_kv_heads=request.num_kv_heads,
            dtype=getattr(torch, request.dtype),
            cache_dtype=getattr(torch, request.kv_dtype),
        )
        return Support.yes() if reason is None else Support.no(reason)

    def kv_layout(self, spec: KVCacheSpec) -> KVLayout:
        """K and V apart, each head's tokens together."""
        shape = (spec.num_kv_heads, spec.block_size, spec.head_dim)
        return KVLayout(
            name="heads-tokens-dim",
            buffers=tuple(
                KVBuffer(name=name, block_shape=shape, dtype=spec.dtype) for name in ("k", "v")
            ),
            block_sizes=_BLOCK_SIZES,
        )

    def workspace_bytes(self, request: AttentionRequest, max_num_tokens: int) -> int:
        """Partial results of long decodes that are split over the keys, whatever the step; layers
        share them. Computed for the widest vectors, so that the library need not be there."""
        rows = max(1, _TARGET_ROWS // (group := request.num_heads // request.num_kv_heads)) * group
        part = rows * (request.head_dim + _ROW_STATE_FLOATS) * _FLOAT32_BYTES
        tile = (2 * _TILE + rows) * request.head_dim + 2 * _MOST_ROWS * _TILE
        thread = _in_pages(2 * part) + _in_pages(tile * _FLOAT32_BYTES)
        num_threads = torch.get_num_threads()
        split = part + max(_SPLIT_BYTES, _PARTS_PER_THREAD * num_threads * part)
        return num_threads * thread + (_in_pages(split) if num_threads > 1 else 0)

    def make_impl(self, request: AttentionRequest, scale: float) -> AttentionImpl:
        """One layer."""
        return NativeAttentionImpl(request, scale)

    def make_builder(
        self, spec: KVCacheSpec, layout: KVLayout, device: torch.device
    ) -> AttentionMetadataBuilder:
        """One group."""
        return _Builder(spec, layout, device)


def _nothing() -> None:
    """In place of a reference: no buffers yet."""


def _in_pages(num_bytes: int) -> int:
    return -(-num_bytes // _PAGE_BYTES) * _PAGE_BYTES
