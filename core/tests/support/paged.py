"""Attention cases over a paged cache, with traps: shuffled blocks, NaN in every slot not
written."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dougong.contracts import (
    AttentionBackend,
    AttentionRequest,
    CommonAttentionMetadata,
    KVCacheSpec,
)


@dataclass(slots=True, kw_only=True)
class PagedCase:
    """Sequences of given lengths whose last tokens are this step's queries; values from a fixed
    seed."""

    query_lens: tuple[int, ...]
    seq_lens: tuple[int, ...]
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    block_size: int = 16
    dtype: torch.dtype = torch.float32
    kv_dtype: torch.dtype | None = None  # None: as dtype

    def values(self) -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
        """Queries, keys and values per sequence: ``[len, heads, head_dim]``."""
        generator = torch.Generator().manual_seed(0)

        def draw(length: int, heads: int) -> torch.Tensor:
            return torch.randn(length, heads, self.head_dim, generator=generator).to(self.dtype)

        return (
            [draw(length, self.num_heads) for length in self.query_lens],
            [draw(length, self.num_kv_heads) for length in self.seq_lens],
            [draw(length, self.num_kv_heads) for length in self.seq_lens],
        )

    def run(
        self,
        backend: AttentionBackend,
        *,
        sliding_window: int | None = None,
        soft_cap: float | None = None,
    ) -> torch.Tensor:
        """``[num_tokens, num_heads, head_dim]`` as the backend computes it."""
        kv_dtype = _name(self.kv_dtype or self.dtype)
        request = AttentionRequest(
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            dtype=_name(self.dtype),
            kv_dtype=kv_dtype,
            block_size=self.block_size,
            sliding_window=sliding_window,
            soft_cap=soft_cap,
        )
        verdict = backend.supports(request)
        assert verdict, verdict.reason
        spec = KVCacheSpec(
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            dtype=kv_dtype,
            block_size=self.block_size,
            sliding_window=sliding_window,
        )
        layout = backend.kv_layout(spec)
        blocks = self._blocks()
        num_blocks = 1 + max(block for row in blocks for block in row)
        cache = [
            torch.full(buffer.shape(num_blocks + 1), torch.nan, dtype=getattr(torch, buffer.dtype))
            for buffer in layout.buffers
        ]
        impl = backend.make_impl(request, self.head_dim**-0.5)
        queries, keys, values = self.values()
        impl.write_kv(torch.cat(keys), torch.cat(values), cache, self._slots(blocks))
        common = self.common(blocks, stranger=num_blocks)
        builder = backend.make_builder(spec, layout, torch.device("cpu"))
        q = torch.cat(queries)
        out = torch.full_like(q, torch.nan)
        step_keys = torch.cat([k[-n:] for k, n in zip(keys, self.query_lens, strict=True)])
        step_values = torch.cat([v[-n:] for v, n in zip(values, self.query_lens, strict=True)])
        impl.forward(q, step_keys, step_values, cache, builder.build(common), out)
        return out

    def _blocks(self) -> list[list[int]]:
        counts = [-(-length // self.block_size) for length in self.seq_lens]
        order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(1)).tolist()
        return [[order.pop() for _ in range(count)] for count in counts]

    def _slots(self, blocks: list[list[int]]) -> torch.Tensor:
        size = self.block_size
        return torch.tensor(
            [
                row[position // size] * size + position % size
                for row, length in zip(blocks, self.seq_lens, strict=True)
                for position in range(length)
            ]
        )

    def common(
        self, blocks: list[list[int]] | None = None, stranger: int = 0
    ) -> CommonAttentionMetadata:
        """The step's lengths and places; past a sequence's end the table holds ``stranger``."""
        blocks = self._blocks() if blocks is None else blocks
        width = max(len(row) for row in blocks) + 1
        table = [row + [stranger] * (width - len(row)) for row in blocks]
        starts = torch.tensor([0, *self.query_lens]).cumsum(0).int()
        lens = torch.tensor(self.seq_lens).int()
        slots = self._slots(blocks)
        return CommonAttentionMetadata(
            num_reqs=len(self.seq_lens),
            num_tokens=sum(self.query_lens),
            max_query_len=max(self.query_lens),
            max_seq_len=max(self.seq_lens),
            cu_seqlens_q=starts,
            cu_seqlens_q_cpu=starts,
            seq_lens=lens,
            seq_lens_cpu=lens,
            block_table=torch.tensor(table, dtype=torch.int32),
            slot_mapping=slots[: sum(self.query_lens)],
        )


def dense_attention(
    case: PagedCase,
    sliding_window: int | None = None,
    soft_cap: float | None = None,
    stored_as: torch.dtype | None = None,
) -> torch.Tensor:
    """The same in float64, without pages: the definition; with keys and values rounded to
    ``stored_as``, if any."""
    outs = []
    for q, *stored in zip(*case.values(), strict=True):
        k, v = (one if stored_as is None else one.to(stored_as) for one in stored)
        repeats = case.num_heads // case.num_kv_heads
        keys = k.double().repeat_interleave(repeats, 1)
        values = v.double().repeat_interleave(repeats, 1)
        scores = torch.einsum("qhd,khd->hqk", q.double(), keys) * case.head_dim**-0.5
        if soft_cap is not None:
            scores = soft_cap * (scores / soft_cap).tanh()
        at = torch.arange(len(k) - len(q), len(k)).unsqueeze(1)
        keys_at = torch.arange(len(k))
        seen = keys_at <= at
        if sliding_window is not None:
            seen &= keys_at > at - sliding_window
        probs = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        outs.append(torch.einsum("hqk,khd->qhd", probs, values))
    return torch.cat(outs)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
