"""One attention layer of a backend on a cache of the backend's layout, driven as the core does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from dougong.contracts import (
    AttentionBackend,
    AttentionRequest,
    CommonAttentionMetadata,
    KVBuffer,
    KVCacheSpec,
)
from dougong_conformance.kit.oracle.attention import AttentionTerms
from dougong_conformance.kit.paged import Geometry, PagedBatch


class Layer:
    """Makes the parts that run, and runs batches through them.

    Args:
        backend: Asked whether it supports the layer first.
        geometry: Of the layer.
        terms: Of the layer.
        num_blocks: Of the cache.
        device: Where everything is.

    Raises:
        AssertionError: The backend does not support the layer; its reason is told.
    """

    def __init__(
        self,
        backend: AttentionBackend,
        geometry: Geometry,
        terms: AttentionTerms,
        num_blocks: int,
        device: torch.device,
    ) -> None:
        self.geometry, self.device = geometry, device
        self.request = AttentionRequest(
            num_heads=geometry.num_heads,
            num_kv_heads=geometry.num_kv_heads,
            head_dim=geometry.head_dim,
            dtype=_name(geometry.dtype),
            kv_dtype=_name(geometry.kv_dtype),
            block_size=geometry.block_size,
            sliding_window=terms.sliding_window,
            soft_cap=terms.soft_cap,
        )
        answer = backend.supports(self.request)
        assert answer, answer.reason
        spec = KVCacheSpec(
            num_kv_heads=geometry.num_kv_heads,
            head_dim=geometry.head_dim,
            dtype=_name(geometry.kv_dtype),
            block_size=geometry.block_size,
            sliding_window=terms.sliding_window,
        )
        self.layout = backend.kv_layout(spec)
        self.cache = [_buffer(one, num_blocks, device) for one in self.layout.buffers]
        self.impl = backend.make_impl(self.request, terms.scale)
        self.builder = backend.make_builder(spec, self.layout, device)

    def slots(self, slots: torch.Tensor) -> torch.Tensor:
        """Slots in the layout's dtype, on the device."""
        return slots.to(getattr(torch, self.layout.slot_dtype)).to(self.device)

    def write(self, k: torch.Tensor, v: torch.Tensor, slots: torch.Tensor) -> None:
        """Keys and values of some tokens into their slots."""
        self.impl.write_kv(k.to(self.device), v.to(self.device), self.cache, self.slots(slots))

    def common(self, step: dict[str, Any]) -> CommonAttentionMetadata:
        """A step of `PagedBatch` as the core tells it."""
        return CommonAttentionMetadata(
            num_reqs=step["num_reqs"],
            num_tokens=step["num_tokens"],
            max_query_len=step["max_query_len"],
            max_seq_len=step["max_seq_len"],
            cu_seqlens_q=step["cu_seqlens_q"].to(self.device),
            cu_seqlens_q_cpu=step["cu_seqlens_q"],
            seq_lens=step["seq_lens"].to(self.device),
            seq_lens_cpu=step["seq_lens"],
            block_table=step["block_table"].to(self.device),
            slot_mapping=self.slots(step["slots"]),
        )

    def attend(
        self,
        common: CommonAttentionMetadata,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
    ) -> torch.Tensor:
        """Write the step's keys and values, then ``[num_tokens, num_heads, head_dim]``."""
        metadata = self.builder.build(common)
        self.impl.write_kv(k, v, self.cache, common.slot_mapping)
        out = torch.full_like(q, torch.nan)
        self.impl.forward(q, k, v, self.cache, metadata, out)
        return out[: common.num_tokens]

    def run(self, batch: PagedBatch) -> torch.Tensor:
        """All that came before a batch's last step, then that step."""
        for one in batch.writes():
            self.write(one["k"], one["v"], one["slots"])
        step = batch.step()
        q, k, v = self.joined(step["q"], step["k"], step["v"])
        return self.attend(self.common(step), q, k, v)

    def joined(self, *parts: torch.Tensor) -> Sequence[torch.Tensor]:
        """On the device as views of one wider tensor, as a model's projection gives them."""
        rows = torch.cat([part.flatten(1) for part in parts], dim=1).to(self.device)
        widths = [part.shape[1] * part.shape[2] for part in parts]
        split = rows.split_with_sizes(widths, dim=1)
        return [
            one.view(one.shape[0], *part.shape[1:]) for one, part in zip(split, parts, strict=True)
        ]


def _buffer(buffer: KVBuffer, num_blocks: int, device: torch.device) -> torch.Tensor:
    """Filled with NaN, which nobody may read."""
    shape = buffer.shape(num_blocks)
    order = buffer.stride_order or tuple(range(len(shape)))
    strides = [math.prod(shape[axis] for axis in order[at + 1 :]) for at in range(len(shape))]
    by_axis = [strides[order.index(axis)] for axis in range(len(shape))]
    made = torch.empty_strided(shape, by_axis, dtype=getattr(torch, buffer.dtype), device=device)
    return made.fill_(torch.nan)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
