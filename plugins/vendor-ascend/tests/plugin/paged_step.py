"""One step of attention, with traps, by any backend: what it computes, and what the cache holds."""

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
    """Sequences whose last tokens are the step's queries; values from a fixed seed.

    Attributes:
        query_lens: Query tokens of each sequence.
        seq_lens: Tokens of each sequence, the queries included.
        num_padding: Rows behind the step's own, with slot -1.
        num_idle: Sequences behind the step's own, without a query and of length 0.
    """

    query_lens: tuple[int, ...]
    seq_lens: tuple[int, ...]
    block_size: int
    num_heads: int = 6
    num_kv_heads: int = 2
    head_dim: int = 32
    dtype: str = "bfloat16"
    window: int | None = None
    num_padding: int = 0
    num_idle: int = 0

    @property
    def request(self) -> AttentionRequest:
        return AttentionRequest(
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            dtype=self.dtype,
            kv_dtype=self.dtype,
            block_size=self.block_size,
            sliding_window=self.window,
        )

    @property
    def spec(self) -> KVCacheSpec:
        return KVCacheSpec(
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            dtype=self.dtype,
            block_size=self.block_size,
            sliding_window=self.window,
        )

    def draw(self, lengths: Sequence[int], heads: int, seed: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        shapes = ((length, heads, self.head_dim) for length in lengths)
        return [
            torch.randn(shape, generator=generator).to(getattr(torch, self.dtype))
            for shape in shapes
        ]

    def cache(self, layout: KVLayout) -> list[torch.Tensor]:
        """Full of what must not be read: a NaN would spoil whatever it touches."""
        blocks = layout.reserved_blocks + sum(-(-n // self.block_size) for n in self.seq_lens)
        return [
            torch.full(buffer.shape(blocks), torch.nan, dtype=getattr(torch, buffer.dtype))
            for buffer in layout.buffers
        ]

    def blocks(self, reserved: int) -> list[list[int]]:
        """Blocks of each sequence, shuffled."""
        counts = [-(-length // self.block_size) for length in self.seq_lens]
        order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(1))
        free = [reserved + int(block) for block in order]
        return [[free.pop() for _ in range(count)] for count in counts]

    def slots(self, layout: KVLayout, num_new: Sequence[int]) -> torch.Tensor:
        """Of each sequence's last tokens, then of padding."""
        size = self.block_size
        tables = self.blocks(layout.reserved_blocks)
        slots = [
            row[position // size] * size + position % size
            for row, length, new in zip(tables, self.seq_lens, num_new, strict=True)
            for position in range(length - new, length)
        ]
        dtype = getattr(torch, layout.slot_dtype)
        return torch.tensor(slots + [-1] * self.num_padding, dtype=dtype)

    def common(self, layout: KVLayout) -> CommonAttentionMetadata:
        blocks = [*self.blocks(layout.reserved_blocks), *([] for _ in range(self.num_idle))]
        width = max(map(len, blocks)) + 1
        starts = [0, *torch.tensor(self.query_lens).cumsum(0).tolist()]
        cu_seqlens = torch.tensor([*starts, *[starts[-1]] * self.num_idle], dtype=torch.int32)
        seq_lens = torch.tensor([*self.seq_lens, *[0] * self.num_idle], dtype=torch.int32)
        table = [row + [_STRANGER] * (width - len(row)) for row in blocks]
        return CommonAttentionMetadata(
            num_reqs=len(blocks),
            num_tokens=starts[-1],
            max_query_len=max(self.query_lens),
            max_seq_len=max(self.seq_lens),
            cu_seqlens_q=cu_seqlens,
            cu_seqlens_q_cpu=cu_seqlens,
            seq_lens=seq_lens,
            seq_lens_cpu=seq_lens,
            block_table=torch.tensor(table, dtype=torch.int32),
            slot_mapping=self.slots(layout, self.query_lens),
        )

    def padded(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        """A slice of a wider tensor, as of a joined projection; rows of padding are NaN."""
        joined = torch.cat(list(rows))
        wide = joined.new_full((len(joined) + self.num_padding, 2, *joined.shape[1:]), torch.nan)
        wide[: len(joined), 0] = joined
        return wide[:, 0]

    def run(self, backend: AttentionBackend) -> torch.Tensor:
        """``[num_tokens, num_heads, head_dim]`` as the backend computes it."""
        layout = backend.kv_layout(self.spec)
        cache = self.cache(layout)
        impl = backend.make_impl(self.request, self.head_dim**-0.5)
        keys = self.draw(self.seq_lens, self.num_kv_heads, seed=3)
        values = self.draw(self.seq_lens, self.num_kv_heads, seed=4)
        history = replace(self, num_padding=0).slots(layout, self.seq_lens)
        impl.write_kv(torch.cat(keys), torch.cat(values), cache, history)
        k, v = (
            self.padded([x[len(x) - n :] for x, n in zip(side, self.query_lens, strict=True)])
            for side in (keys, values)
        )
        common = self.common(layout)
        impl.write_kv(k, v, cache, common.slot_mapping)
        q = self.padded(self.draw(self.query_lens, self.num_heads, seed=2))
        out = torch.full(q.shape, torch.nan, dtype=q.dtype)
        metadata = backend.make_builder(self.spec, layout, torch.device("cpu")).build(common)
        impl.forward(q, k, v, cache, metadata, out)
        return out[: common.num_tokens]

    def expected(self) -> torch.Tensor:
        """The definition, in float64 and without pages."""
        outs = []
        for q, k, v in zip(
            self.draw(self.query_lens, self.num_heads, seed=2),
            self.draw(self.seq_lens, self.num_kv_heads, seed=3),
            self.draw(self.seq_lens, self.num_kv_heads, seed=4),
            strict=True,
        ):
            group = self.num_heads // self.num_kv_heads
            keys, values = (x.double().repeat_interleave(group, 1) for x in (k, v))
            scores = torch.einsum("qhd,khd->hqk", q.double(), keys) * self.head_dim**-0.5
            at, keys_at = torch.arange(len(k) - len(q), len(k)).unsqueeze(1), torch.arange(len(k))
            hidden = keys_at > at
            if self.window is not None:
                hidden |= keys_at <= at - self.window
            weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
            outs.append(torch.einsum("hqk,khd->qhd", weights, values))
        return torch.cat(outs)
