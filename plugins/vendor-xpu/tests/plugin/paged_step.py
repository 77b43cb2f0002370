"""One step of attention over a paged cache, with traps, and what must come out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from dougong.contracts import (
    AttentionBackend,
    AttentionRequest,
    CommonAttentionMetadata,
    KVCacheSpec,
    KVLayout,
)

_STRANGER = 10**6  # in the table behind a sequence's last block: reading it fails


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedStep:
    """Sequences whose last tokens are the step's queries; the same numbers every time.

    Attributes:
        query_lens: Query tokens of each sequence.
        seq_lens: Tokens of each sequence, the queries included.
        num_padding: Rows behind the step's own, with slot -1.
    """

    query_lens: tuple[int, ...]
    seq_lens: tuple[int, ...]
    num_heads: int = 6
    num_kv_heads: int = 2
    head_dim: int = 64
    block_size: int = 16
    dtype: str = "bfloat16"
    kv_dtype: str = "bfloat16"
    window: int | None = None
    num_padding: int = 0

    @property
    def request(self) -> AttentionRequest:
        """As such a layer asks."""
        return AttentionRequest(
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            dtype=self.dtype,
            kv_dtype=self.kv_dtype,
            block_size=self.block_size,
            sliding_window=self.window,
        )

    @property
    def spec(self) -> KVCacheSpec:
        """What such a layer stores."""
        return KVCacheSpec(
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            dtype=self.kv_dtype,
            block_size=self.block_size,
            sliding_window=self.window,
        )

    def rows(self, heads: int, seed: int) -> list[torch.Tensor]:
        """For every token of each sequence ``[heads, head_dim]``, in the step's dtype."""
        generator = torch.Generator().manual_seed(seed)
        dtype = getattr(torch, self.dtype)
        return [
            torch.randn(length, heads, self.head_dim, generator=generator).to(dtype)
            for length in self.seq_lens
        ]

    def blocks(self, reserved: int = 0) -> list[list[int]]:
        """Blocks of each sequence, shuffled."""
        counts = [-(-length // self.block_size) for length in self.seq_lens]
        order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(1))
        free = [reserved + int(block) for block in order]
        return [[free.pop() for _ in range(count)] for count in counts]

    def slots(self, layout: KVLayout, num_new: Sequence[int]) -> torch.Tensor:
        """Of each sequence's last tokens, then of padding."""
        size = self.block_size
        slots = [
            row[position // size] * size + position % size
            for row, length, new in zip(
                self.blocks(layout.reserved_blocks), self.seq_lens, num_new, strict=True
            )
            for position in range(length - new, length)
        ]
        return torch.tensor(
            slots + [-1] * self.num_padding, dtype=getattr(torch, layout.slot_dtype)
        )

    def common(self, layout: KVLayout) -> CommonAttentionMetadata:
        """Lengths and places; what lies behind a sequence's blocks is no block at all."""
        blocks = self.blocks(layout.reserved_blocks)
        width = max(map(len, blocks)) + 1
        starts = torch.tensor([0, *self.query_lens]).cumsum(0).to(torch.int32)
        lengths = torch.tensor(self.seq_lens, dtype=torch.int32)
        table = [row + [_STRANGER] * (width - len(row)) for row in blocks]
        return CommonAttentionMetadata(
            num_reqs=len(blocks),
            num_tokens=sum(self.query_lens),
            max_query_len=max(self.query_lens),
            max_seq_len=max(self.seq_lens),
            cu_seqlens_q=starts,
            cu_seqlens_q_cpu=starts,
            seq_lens=lengths,
            seq_lens_cpu=lengths,
            block_table=torch.tensor(table, dtype=torch.int32),
            slot_mapping=self.slots(layout, self.query_lens),
        )

    def run(self, backend: AttentionBackend, cache: Sequence[torch.Tensor]) -> torch.Tensor:
        """``[num_tokens, num_heads, head_dim]`` as the backend computes it."""
        layout = backend.kv_layout(self.spec)
        impl = backend.make_impl(self.request, self.head_dim**-0.5)
        keys, values = (self.rows(self.num_kv_heads, seed) for seed in (3, 4))
        history = replace(self, num_padding=0).slots(layout, self.seq_lens)
        impl.write_kv(torch.cat(keys), torch.cat(values), cache, history)
        k, v, q = (self._new(side) for side in (keys, values, self.rows(self.num_heads, 2)))
        common = self.common(layout)
        impl.write_kv(k, v, cache, common.slot_mapping)
        out = torch.full_like(q, torch.nan)
        metadata = backend.make_builder(self.spec, layout, q.device).build(common)
        impl.forward(q, k, v, cache, metadata, out)
        return out[: common.num_tokens]

    def expected(self) -> torch.Tensor:
        """The definition, in float64 and without pages."""
        group, outs = self.num_heads // self.num_kv_heads, []
        sides = (self.rows(self.num_heads, 2), self.rows(self.num_kv_heads, 3))
        for q, k, v, new in zip(
            *sides, self.rows(self.num_kv_heads, 4), self.query_lens, strict=True
        ):
            keys, values = (x.double().repeat_interleave(group, 1) for x in (k, v))
            queries = q[len(q) - new :].double()
            scores = torch.einsum("qhd,khd->hqk", queries, keys) * self.head_dim**-0.5
            at, keys_at = torch.arange(len(k) - new, len(k)).unsqueeze(1), torch.arange(len(k))
            hidden = keys_at > at
            if self.window is not None:
                hidden |= keys_at <= at - self.window
            weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
            outs.append(torch.einsum("hqk,khd->qhd", weights, values))
        return torch.cat(outs)

    def _new(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        """The step's own rows, and padding that must do no harm."""
        own = torch.cat(
            [one[len(one) - new :] for one, new in zip(rows, self.query_lens, strict=True)]
        )
        return torch.cat([own, own.new_full((self.num_padding, *own.shape[1:]), torch.nan)])


def make_cache(backend: AttentionBackend, step: PagedStep) -> list[torch.Tensor]:
    """Contiguous, NaN wherever nothing was written."""
    layout = backend.kv_layout(step.spec)
    num_blocks = layout.reserved_blocks + sum(map(len, step.blocks()))
    return [
        torch.full(one.shape(num_blocks), torch.nan, dtype=getattr(torch, one.dtype))
        for one in layout.buffers
    ]
