"""Batches over a paged cache: blocks shuffled, gaps poisoned, lengths that end anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dougong_conformance.kit.generate import Draw
from dougong_conformance.kit.metric import Expected
from dougong_conformance.kit.oracle.attention import AttentionTerms, attention

PADDING = -1


@dataclass(frozen=True, slots=True)
class Span:
    """One sequence of a step.

    Attributes:
        length: Tokens with keys and values after the step.
        query: Of them, those of this step.
        shared: Leading blocks that are the first sequence's own.
    """

    length: int
    query: int = 1
    shared: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Sizes of a layer and of its cache.

    Attributes:
        num_heads: Query heads.
        num_kv_heads: KV heads.
        head_dim: Elements per head.
        block_size: Tokens per block.
        reserved_blocks: Of the backend; never used.
        dtype: Of queries and results.
        kv_dtype: Of the cache.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    reserved_blocks: int = 0
    dtype: torch.dtype
    kv_dtype: torch.dtype


class PagedBatch:
    """Sequences with their numbers and blocks, and the steps that bring them into a cache.

    Args:
        draw: For everything.
        spans: The sequences.
        geometry: Of the layer.
        padded: Rows and tokens of padding at the end of the last step.
        first_block: Smallest block that is used; 0: the first one that is free.
    """

    def __init__(
        self,
        draw: Draw,
        spans: Sequence[Span],
        geometry: Geometry,
        *,
        padded: int = 0,
        first_block: int = 0,
    ) -> None:
        self.spans, self.geometry, self.padded = tuple(spans), geometry, padded
        heads, kv_heads, dim = geometry.num_heads, geometry.num_kv_heads, geometry.head_dim
        self.queries = [draw.normal(span.query, heads, dim) for span in spans]
        self.keys = [draw.normal(span.length, kv_heads, dim) for span in spans]
        self.values = [draw.normal(span.length, kv_heads, dim) for span in spans]
        for index, span in enumerate(self.spans):
            kept = min(span.shared * geometry.block_size, span.length)
            for rows in (self.keys, self.values):
                rows[index][:kept] = rows[0][:kept]
        self._place(draw, first_block)

    def _place(self, draw: Draw, first_block: int) -> None:
        size = self.geometry.block_size
        self.poison_block = max(self.geometry.reserved_blocks, first_block)
        needed = [-(-span.length // size) - span.shared for span in self.spans]
        # One block that nobody owns, at which padding points, and some between that stay empty.
        self.num_blocks = self.poison_block + 1 + sum(needed) + 3
        free = (draw.permutation(sum(needed) + 3) + self.poison_block + 1).tolist()
        self.blocks: list[list[int]] = []
        for span, count in zip(self.spans, needed, strict=True):
            shared = self.blocks[0][: span.shared] if span.shared else []
            self.blocks.append([*shared, *(free.pop() for _ in range(count))])

    def slots(self, index: int, start: int, end: int) -> torch.Tensor:
        """int64: where tokens of a sequence lie."""
        at = torch.arange(start, end)
        size = self.geometry.block_size
        return torch.tensor(self.blocks[index])[at // size] * size + at % size

    def writes(self) -> list[dict[str, torch.Tensor]]:
        """What came before the last step, in two chunks that end anywhere, padding among them."""
        done = [span.length - span.query for span in self.spans]
        first = [
            max(span.shared * self.geometry.block_size, count - count // 3 - 1, 0)
            for span, count in zip(self.spans, done, strict=True)
        ]
        shared = [span.shared * self.geometry.block_size for span in self.spans]
        chunks = [self._rows(shared, first), self._rows(first, done)]
        return [one for one in chunks if len(one["slots"])]

    def _rows(self, starts: Sequence[int], ends: Sequence[int]) -> dict[str, torch.Tensor]:
        ranges = [
            (index, start, end)
            for index, (start, end) in enumerate(zip(starts, ends, strict=True))
            if start < end
        ]
        if not ranges:
            empty = self.keys[0][:0]
            return {"k": empty, "v": empty, "slots": torch.zeros(0, dtype=torch.int64)}
        gap = torch.full_like(self.keys[0][:1], torch.nan)
        return {
            "k": torch.cat([gap, *(self.keys[i][start:end] for i, start, end in ranges)]),
            "v": torch.cat([gap, *(self.values[i][start:end] for i, start, end in ranges)]),
            "slots": torch.cat(
                [torch.tensor([PADDING]), *(self.slots(i, start, end) for i, start, end in ranges)]
            ),
        }

    def step(self, only: Sequence[int] | None = None) -> dict[str, Any]:
        """The last step, of all sequences or of some in the order given."""
        chosen = range(len(self.spans)) if only is None else only
        spans = [self.spans[i] for i in chosen]
        lens = [span.query for span in spans]
        starts = [0, *torch.tensor(lens).cumsum(0).tolist()]
        new = [
            (i, self.spans[i].length - self.spans[i].query, self.spans[i].length) for i in chosen
        ]
        width = max(len(self.blocks[i]) for i in chosen) + 1
        table = [
            self.blocks[i] + [self.poison_block] * (width - len(self.blocks[i])) for i in chosen
        ]
        pad_rows, pad_tokens = min(self.padded, 2), self.padded
        gap = {
            "q": torch.full_like(self.queries[0][:1], torch.nan).expand(pad_tokens, -1, -1),
            "k": torch.full_like(self.keys[0][:1], torch.nan).expand(pad_tokens, -1, -1),
        }
        return {
            "q": torch.cat([*(self.queries[i] for i in chosen), gap["q"]]),
            "k": torch.cat([*(self.keys[i][start:end] for i, start, end in new), gap["k"]]),
            "v": torch.cat([*(self.values[i][start:end] for i, start, end in new), gap["k"]]),
            "slots": torch.cat(
                [*(self.slots(*one) for one in new), torch.full((pad_tokens,), PADDING)]
            ),
            "num_reqs": len(spans),
            "num_tokens": starts[-1],
            "max_query_len": max(lens),
            "max_seq_len": max(span.length for span in spans),
            "cu_seqlens_q": torch.tensor(starts + starts[-1:] * pad_rows, dtype=torch.int32),
            "seq_lens": torch.tensor(
                [span.length for span in spans] + [0] * pad_rows, dtype=torch.int32
            ),
            "block_table": torch.tensor(
                table + [[self.poison_block] * width] * pad_rows, dtype=torch.int32
            ),
        }

    def expected(self, terms: AttentionTerms, only: Sequence[int] | None = None) -> Expected:
        """What the last step must give, from keys and values as the cache stores them."""
        chosen = range(len(self.spans)) if only is None else only
        return attention(
            [self.queries[i] for i in chosen],
            [stored(self.keys[i], self.geometry.kv_dtype) for i in chosen],
            [stored(self.values[i], self.geometry.kv_dtype) for i in chosen],
            terms,
        )


def stored(rows: torch.Tensor, kv_dtype: torch.dtype) -> torch.Tensor:
    """Rounded to the cache's dtype; what is beyond the largest number of 8 bits is cut to it."""
    if kv_dtype.itemsize == 1:
        limits = torch.finfo(kv_dtype)
        rows = rows.float().clamp(limits.min, limits.max)
    return rows.to(kv_dtype).float()
