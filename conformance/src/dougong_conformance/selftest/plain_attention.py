"""An attention backend in plain torch, each step of which can be replaced by a wrong one."""

from __future__ import annotations

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
)

from dougong_conformance.selftest.changes import with_backend
from dougong_conformance.session import PluginUnderTest

_FLOATS = frozenset({"float32", "bfloat16", "float16"})
NAME = "changed/attention"


class PlainBuilder(AttentionMetadataBuilder):
    """Keeps the common metadata."""

    def build(self, common: CommonAttentionMetadata) -> Any:
        """As it is."""
        return common


class PlainImpl(AttentionImpl):
    """Right as it is; a mutant overrides one method."""

    def write_kv(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        slot_mapping: torch.Tensor,
    ) -> None:
        """Rows of slot -1 are left out."""
        slots = self._slots(slot_mapping.long(), kv_cache)
        written = slots >= 0
        for rows, cache in zip(self._stored(k, v), kv_cache, strict=True):
            self._put(cache, slots[written], self._narrow(rows[written], cache.dtype))

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        metadata: CommonAttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        """One sequence after the other."""
        starts = metadata.cu_seqlens_q_cpu.tolist()
        self._num_reqs = metadata.num_reqs
        for index, length in enumerate(metadata.seq_lens_cpu.tolist()):
            start, end = starts[index], starts[index + 1]
            if start == end:
                continue
            keys, values = self._gather(kv_cache, metadata.block_table, index, length)
            rows = self._attend(q[start:end].float(), keys.float(), values.float())
            out[start:end] = rows.to(out.dtype)

    def _slots(self, slots: torch.Tensor, kv_cache: Sequence[torch.Tensor]) -> torch.Tensor:
        return slots

    def _stored(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return k, v

    def _narrow(self, rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if dtype.itemsize == 1:
            limits = torch.finfo(dtype)
            rows = rows.float().clamp(limits.min, limits.max)
        return rows.to(dtype)

    def _put(self, cache: torch.Tensor, slots: torch.Tensor, rows: torch.Tensor) -> None:
        blocks, at = place_of(slots, cache.shape[1])
        cache[blocks, at] = rows

    def _gather(
        self, kv_cache: Sequence[torch.Tensor], table: torch.Tensor, index: int, length: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        size = kv_cache[0].shape[1]
        blocks = self._blocks(table, index, -(-length // size))
        keys, values = (self._read(cache, blocks)[:length] for cache in kv_cache)
        return keys, values

    def _blocks(self, table: torch.Tensor, index: int, count: int) -> torch.Tensor:
        return table[index, :count].long()

    def _read(self, cache: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
        return self._widen(cache[blocks].flatten(0, 1))

    def _widen(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.float()

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        heads = self._kv_heads(q.shape[1], k.shape[1])
        k, v = k[:, heads], v[:, heads]
        scores = torch.einsum("qhd,khd->hqk", self._scaled(q), k)
        hidden = self._hidden(q.shape[0], k.shape[0], q.device)
        return torch.einsum("hqk,khd->qhd", self._shares(self._masked(scores, hidden)), v)

    def _kv_heads(self, num_heads: int, num_kv_heads: int) -> list[int]:
        return [head // (num_heads // num_kv_heads) for head in range(num_heads)]

    def _scaled(self, q: torch.Tensor) -> torch.Tensor:
        return q * self._scale()

    def _scale(self) -> float:
        return self.scale

    def _hidden(self, num_queries: int, num_keys: int, device: torch.device) -> torch.Tensor:
        at_query = torch.arange(num_keys - num_queries, num_keys, device=device).unsqueeze(1)
        at_key = torch.arange(num_keys, device=device)
        hidden = at_key > at_query
        window = self._window()
        return hidden if window is None else hidden | (at_key <= at_query - window)

    def _window(self) -> int | None:
        return self.request.sliding_window

    def _masked(self, scores: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        return self._capped(scores).masked_fill(hidden, -torch.inf)

    def _capped(self, scores: torch.Tensor) -> torch.Tensor:
        cap = self.request.soft_cap
        return scores if cap is None else cap * torch.tanh(scores / cap)

    def _shares(self, scores: torch.Tensor) -> torch.Tensor:
        return scores.softmax(dim=-1)


def place_of(slots: torch.Tensor, block_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Block of each slot, and the token in it."""
    blocks = slots.div(block_size, rounding_mode="floor")
    return blocks, slots - blocks * block_size


class PlainBackend(AttentionBackend):
    """Takes every plain kind of layer; blocks of any size, K and V apart."""

    name = NAME
    limits = AttentionLimits(
        dtypes=_FLOATS,
        kv_dtypes=_FLOATS | {"float8_e4m3fn", "float8_e5m2"},
        sliding_window=True,
        soft_cap=True,
    )

    def kv_layout(self, spec: KVCacheSpec) -> KVLayout:
        """Tokens outermost in a block."""
        shape = (spec.block_size, spec.num_kv_heads, spec.head_dim)
        return KVLayout(
            name="plain",
            buffers=tuple(
                KVBuffer(name=name, block_shape=shape, dtype=spec.dtype) for name in ("k", "v")
            ),
            block_sizes=(spec.block_size,),
        )

    def make_impl(self, request: AttentionRequest, scale: float) -> AttentionImpl:
        """One layer."""
        return PlainImpl(request, scale)

    def make_builder(
        self, spec: KVCacheSpec, layout: KVLayout, device: torch.device
    ) -> AttentionMetadataBuilder:
        """One group."""
        return PlainBuilder(spec, layout, device)


def with_plain(
    plugin: PluginUnderTest,
    *,
    backend: dict[str, Any] | None = None,
    builder: type[AttentionMetadataBuilder] | None = None,
    **methods: Callable[..., Any],
) -> PluginUnderTest:
    """A plugin whose only backend is the plain one, with some methods replaced.

    Args:
        plugin: The good one.
        backend: Attributes and methods of the backend's class.
        builder: Class of its builders.
        methods: Of `PlainImpl`.
    """
    impl = type("ChangedImpl", (PlainImpl,), {**methods, "__module__": __name__})
    made: dict[str, Any] = {
        "make_impl": lambda self, request, scale: impl(request, scale),
        "__module__": __name__,
    }
    if builder is not None:
        made["make_builder"] = lambda self, spec, layout, device: builder(spec, layout, device)
    return with_backend(
        plugin, type("ChangedBackend", (PlainBackend,), {**made, **(backend or {})})
    )
