"""The native attention backend: paged, any mix of prefill and decode in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dougong.contracts import (
    AttentionBackend,
    AttentionImpl,
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

_BLOCK_SIZES = (16, 32, 64, 128)


class _Builder(AttentionMetadataBuilder):
    """The kernel reads the common metadata as it is."""

    def build(self, common: CommonAttentionMetadata) -> CommonAttentionMetadata:
        return common


class NativeAttentionImpl(AttentionImpl):
    """Kernels bound to this layer's buffers at the first step that brings them."""

    def __init__(self, request: AttentionRequest, scale: float) -> None:
        super().__init__(request, scale)
        self._dtype = getattr(torch, request.dtype)
        self._bound_to: Sequence[torch.Tensor] | None = None
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
        if kv_cache is not self._bound_to:
            self._bind(kv_cache)
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
        if kv_cache is not self._bound_to:
            self._bind(kv_cache)
        self._attend(q, metadata.block_table, metadata.seq_lens, metadata.cu_seqlens_q, out)

    def _bind(self, kv_cache: Sequence[torch.Tensor]) -> None:
        library = get_library()
        assert not isinstance(library, native.NotBuilt), "supports() has said no"
        k_cache, v_cache = kv_cache
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
        self._bound_to = kv_cache


class NativeAttentionBackend(AttentionBackend):
    """Compiled for this processor; where no compiler is, it says so."""

    name = "cpu/native"

    def supports(self, request: AttentionRequest) -> Support:
        """Plain attention in float32 or bfloat16 with blocks of 16 to 128 tokens."""
        for asked, what in (
            (request.is_mla, "multi-head latent attention"),
            (request.has_sinks, "attention sinks"),
            (request.needs_graph, "graph capture"),
        ):
            if asked:
                return Support.no(f"{what}; the native attention has none")
        if request.block_size not in (None, *_BLOCK_SIZES):
            return Support.no(f"block_size={request.block_size}; takes {_BLOCK_SIZES}")
        reason = native.unsupported_attention(
            head_dim=request.head_dim,
            num_heads=request.num_heads,
            num_kv_heads=request.num_kv_heads,
            dtype=getattr(torch, request.dtype),
            cache_dtype=getattr(torch, request.kv_dtype),
        )
        if reason is not None:
            return Support.no(reason)
        library = get_library()
        if isinstance(library, native.NotBuilt):
            return Support.no(library.reason)
        return Support.yes()

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
        """Partial results of long decodes that are split over the keys; layers share them."""
        library = get_library()
        assert not isinstance(library, native.NotBuilt), "supports() has said no"
        return native.attention_workspace_bytes(
            library,
            head_dim=request.head_dim,
            num_heads=request.num_heads,
            num_kv_heads=request.num_kv_heads,
            dtype=getattr(torch, request.dtype),
            cache_dtype=getattr(torch, request.kv_dtype),
        )

    def make_impl(self, request: AttentionRequest, scale: float) -> AttentionImpl:
        """One layer."""
        return NativeAttentionImpl(request, scale)

    def make_builder(
        self, spec: KVCacheSpec, layout: KVLayout, device: torch.device
    ) -> AttentionMetadataBuilder:
        """One group."""
        return _Builder(spec, layout, device)
