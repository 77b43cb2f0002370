"""Paged attention of ``intel-extension-for-pytorch``, with guards where it would crash.

Measured with its build for processors, which is the one that runs without the device:

* The cache lies as ``[blocks, kv_heads, block_size, head_dim]``. In any other shape, the one in its
  own documentation included, the process ends with a fault of memory; so shapes are checked.
* A slot below zero or behind the cache ends the process, too. Such slots become slot 0, in a block
  that nobody reads.
* `varlen_attention` ignores its scale and aligns its mask at the wrong end for chunked prefill, so
  `flash_attn_varlen_func` is called.

See `dougong_xpu.ipex_library` for why no engine reaches this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    UnsupportedError,
)

from dougong_xpu import ipex_library
from dougong_xpu.block_table import own_blocks
from dougong_xpu.providers import EXTENSION, OLDER_TORCH

_BLOCK_SIZES = (64, 16, 32, 128)
_DTYPES = frozenset({"float32", "bfloat16", "float16"})


class IpexPagedBackend(AttentionBackend):
    """Answers questions while planning; then makes the parts that run."""

    name = "xpu/ipex_paged"
    library = EXTENSION
    features = frozenset({OLDER_TORCH})
    limits = AttentionLimits(
        dtypes=_DTYPES,
        head_size_multiple=16,
        max_head_size=256,
        block_sizes=_BLOCK_SIZES,
    )

    def kv_layout(self, spec: KVCacheSpec) -> KVLayout:
        """K and V apart, heads outermost in a block; block 0 takes what must not be written."""
        sizes = {"k": spec.head_dim, "v": spec.head_dim_v or spec.head_dim}
        return KVLayout(
            name="ipex-heads-tokens-dim",
            buffers=tuple(
                KVBuffer(
                    name=name,
                    block_shape=(spec.num_kv_heads, spec.block_size, size),
                    dtype=spec.dtype,
                )
                for name, size in sizes.items()
            ),
            block_sizes=_BLOCK_SIZES,
            alignment_bytes=64,
            slot_dtype="int64",
            reserved_blocks=1,
        )

    def make_impl(self, request: AttentionRequest, scale: float) -> AttentionImpl:
        """One layer.

        Raises:
            UnsupportedError: It is none that `supports` says yes to.
        """
        self.check_supported(request)
        return IpexPagedImpl(request, scale)

    def make_builder(
        self, spec: KVCacheSpec, layout: KVLayout, device: torch.device
    ) -> AttentionMetadataBuilder:
        """One per group of layers that are alike."""
        return IpexPagedBuilder(spec, layout, device)


@dataclass(slots=True)
class IpexStep:
    """What the kernels read of one step.

    Attributes:
        num_tokens: Query rows, without padding.
        max_query_len: Most query rows of one sequence.
        max_seq_len: Longest sequence.
        cu_seqlens_q: int32 ``[num_reqs + 1]``.
        cu_seqlens_kv: int32 ``[num_reqs + 1]``: sums of the lengths.
        seq_lens: int32 ``[num_reqs]``.
        block_table: int32 ``[num_reqs, max_blocks_per_seq]``; entries that no sequence has are 0.
    """

    num_tokens: int
    max_query_len: int
    max_seq_len: int
    cu_seqlens_q: torch.Tensor
    cu_seqlens_kv: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor


class IpexPagedBuilder(AttentionMetadataBuilder):
    """Once per step and group; nothing here waits for the device."""

    def build(self, common: CommonAttentionMetadata) -> IpexStep:
        """See `IpexStep`."""
        ends = common.seq_lens.cumsum(0).to(torch.int32)
        return IpexStep(
            num_tokens=common.num_tokens,
            max_query_len=common.max_query_len,
            max_seq_len=common.max_seq_len,
            cu_seqlens_q=common.cu_seqlens_q,
            cu_seqlens_kv=torch.cat((ends.new_zeros(1), ends)),
            seq_lens=common.seq_lens,
            block_table=own_blocks(common, self.spec.block_size),
        )


class IpexPagedImpl(AttentionImpl):
    """One layer."""

    def __init__(self, request: AttentionRequest, scale: float) -> None:
        super().__init__(request, scale)
        self._head_mapping: torch.Tensor | None = None

    def write_kv(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        slot_mapping: torch.Tensor,
    ) -> None:
        """See `AttentionImpl`; a slot that is none becomes slot 0, in the reserved block."""
        key_cache, value_cache = self._checked(kv_cache)
        num_slots = key_cache.shape[0] * key_cache.shape[2]
        is_none = (slot_mapping < 0) | (slot_mapping >= num_slots)
        slots = slot_mapping.masked_fill(is_none, 0)
        ipex_library.paged.reshape_and_cache(k, v, key_cache, value_cache, slots)

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        metadata: IpexStep,
        out: torch.Tensor,
    ) -> None:
        """See `AttentionImpl`; keys and values are read from the cache."""
        key_cache, value_cache = self._checked(kv_cache)
        queries = q[: metadata.num_tokens].contiguous()
        attended = torch.empty_like(queries)
        if metadata.max_query_len == 1:
            ipex_library.paged.single_query_cached_kv_attention(
                attended,
                queries,
                key_cache,
                value_cache,
                self._mapping(q.device),
                self.scale,
                metadata.block_table,
                metadata.seq_lens,
                key_cache.shape[2],
                metadata.max_seq_len,
                None,
            )
        else:
            ipex_library.paged.flash_attn_varlen_func(
                attended,
                queries,
                key_cache,
                value_cache,
                metadata.cu_seqlens_q,
                metadata.cu_seqlens_kv,
                metadata.max_query_len,
                metadata.max_seq_len,
                self.scale,
                True,
                metadata.block_table,
                None,
            )
        out[: metadata.num_tokens] = attended

    def _mapping(self, device: torch.device) -> torch.Tensor:
        """KV head of each query head."""
        if self._head_mapping is None or self._head_mapping.device != device:
            heads, kv_heads = self.request.num_heads, self.request.num_kv_heads
            own = torch.arange(heads, device=device).div(heads // kv_heads, rounding_mode="floor")
            self._head_mapping = own.to(torch.int32)
        return self._head_mapping

    def _checked(self, kv_cache: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """The caches, if they lie as the kernels read them; else the process would end.

        Raises:
            UnsupportedError: They do not.
        """
        key_cache, value_cache = kv_cache
        request = self.request
        for cache in kv_cache:
            sizes = (request.num_kv_heads, request.block_size or cache.shape[-2], request.head_dim)
            if tuple(cache.shape[1:]) != sizes or not cache.is_contiguous():
                raise UnsupportedError(
                    f"a cache of shape {tuple(cache.shape)} with strides {cache.stride()}; the "
                    "kernels of intel-extension-for-pytorch take [blocks, kv_heads, block_size, "
                    f"head_dim], contiguous, here [blocks, {', '.join(map(str, sizes))}]"
                )
        return key_cache, value_cache
