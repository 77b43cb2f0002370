"""One step of attention on the device, with traps, and what must come out."""

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
        max_query_len: Told to the backend; ``None``: the real one.
    """

    query_lens: tuple[int, ...]
    seq_lens: tuple[int, ...]
    num_heads: int = 6
    num_kv_heads: int = 2
    head_dim: int = 16
    block_size: int = 24
    dtype: str = "float32"
    kv_dtype: str = "float32"
    window: int | None = None
    soft_cap: float | None = None
    num_padding: int = 0
    num_idle: int = 0
    max_query_len: int | None = None

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
            soft_cap=self.soft_cap,
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

    @property
    def num_tokens(self) -> int:
        """Rows that count."""
        return sum(self.query_lens)

    def draw(self, lengths: Sequence[int], heads: int, seed: int) -> list[torch.Tensor]:
        """Values per sequence, ``[length, heads, head_dim]``, rounded to the step's dtype."""
        generator = torch.Generator().manual_seed(seed)
        dtype = getattr(torch, self.dtype)
        return [
            torch.randn(length, heads, self.head_dim, generator=generator).to(dtype)
            for length in lengths
        ]

    def blocks(self, reserved: int) -> list[list[int]]:
        """Blocks of each sequence, shuffled."""
        counts = [-(-length // self.block_size) for length in self.seq_lens]
        order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(1))
        free = [reserved + int(block) for block in order]
        return [[free.pop() for _ in range(count)] for count in counts]

    def common(self, layout: KVLayout, device: torch.device) -> CommonAttentionMetadata:
        """Lengths and places; what lies behind a sequence's blocks is no block at all."""
        blocks = [*self.blocks(layout.reserved_blocks), *([] for _ in range(self.num_idle))]
        width = max(map(len, blocks)) + 1
        starts = [0, *torch.tensor(self.query_lens).cumsum(0).tolist()]
        cu_seqlens = torch.tensor([*starts, *[starts[-1]] * self.num_idle], dtype=torch.int32)
        seq_lens = torch.tensor([*self.seq_lens, *[0] * self.num_idle], dtype=torch.int32)
        table = [row + [_STRANGER] * (width - len(row)) for row in blocks]
        return CommonAttentionMetadata(
            num_reqs=len(blocks),
            num_tokens=self.num_tokens,
            max_query_len=self.max_query_len or max(self.query_lens),
            max_seq_len=max(self.seq_lens),
            cu_seqlens_q=cu_seqlens.to(device),
            cu_seqlens_q_cpu=cu_seqlens,
            seq_lens=seq_lens.to(device),
            seq_lens_cpu=seq_lens,
            block_table=torch.tensor(table, dtype=torch.int32).to(device),
            slot_mapping=self.slots(layout, num_new=self.query_lens).to(device),
        )

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
        padding = [-1] * self.num_padding
        return torch.tensor(slots + padding, dtype=getattr(torch, layout.slot_dtype))

    def padded(self, rows: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
        """The rows of all sequences, and padding that must do no harm."""
        joined = torch.cat(list(rows))
        return torch.cat(
            [joined, joined.new_full((self.num_padding, *joined.shape[1:]), torch.nan)]
        ).to(device)

    def run(self, backend: AttentionBackend, cache: Sequence[torch.Tensor]) -> torch.Tensor:
        """``[num_tokens, num_heads, head_dim]`` as the backend computes it, on its device."""
        device, layout = cache[0].device, backend.kv_layout(self.spec)
        queries = self.draw(self.query_lens, self.num_heads, seed=2)
        keys = self.draw(self.seq_lens, self.num_kv_heads, seed=3)
        values = self.draw(self.seq_lens, self.num_kv_heads, seed=4)
        impl = backend.make_impl(self.request, self.head_dim**-0.5)
        history = replace(self, num_padding=0).slots(layout, num_new=self.seq_lens)
        impl.write_kv(
            torch.cat(keys).to(device), torch.cat(values).to(device), cache, history.to(device)
        )
        new_keys, new_values = (
            [rows[len(rows) - new :] for rows, new in zip(side, self.query_lens, strict=True)]
            for side in (keys, values)
        )
        k, v = self.padded(new_keys, device), self.padded(new_values, device)
        common = self.common(layout, device)
        impl.write_kv(k, v, cache, common.slot_mapping)
        q = self.padded(queries, device)
        out = torch.full_like(q, torch.nan)
        metadata = backend.make_builder(self.spec, layout, device).build(common)
        impl.forward(q, k, v, cache, metadata, out)
        return out[: self.num_tokens]

    def expected(self) -> torch.Tensor:
        """The definition, in float64 and without pages; keys and values rounded as stored."""
        stored = getattr(torch, self.kv_dtype)
        outs = []
        for q, k, v in zip(
            self.draw(self.query_lens, self.num_heads, seed=2),
            self.draw(self.seq_lens, self.num_kv_heads, seed=3),
            self.draw(self.seq_lens, self.num_kv_heads, seed=4),
            strict=True,
        ):
            group = self.num_heads // self.num_kv_heads
            keys, values = (x.to(stored).double().repeat_interleave(group, 1) for x in (k, v))
            scores = torch.einsum("qhd,khd->hqk", q.double(), keys) * self.head_dim**-0.5
            if self.soft_cap is not None:
                scores = self.soft_cap * (scores / self.soft_cap).tanh()
            at, keys_at = torch.arange(len(k) - len(q), len(k)).unsqueeze(1), torch.arange(len(k))
            hidden = keys_at > at
            if self.window is not None:
                hidden |= keys_at <= at - self.window
            weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
            outs.append(torch.einsum("hqk,khd->qhd", weights, values))
        return torch.cat(outs)
