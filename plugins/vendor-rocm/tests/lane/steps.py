"""Steps over a cache that is filled already, on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from dougong.contracts import AttentionRequest, CommonAttentionMetadata


@dataclass(frozen=True, slots=True)
class Step:
    """One step of attention.

    Attributes:
        q: ``[num_tokens, num_heads, head_dim]``.
        k: This step's keys; the cache holds them already.
        v: This step's values.
        caches: K and V.
        common: Lengths and places.
        block_size: Tokens per block.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    caches: tuple[torch.Tensor, torch.Tensor]
    common: CommonAttentionMetadata
    block_size: int


def make_step(
    request: AttentionRequest, lengths: Sequence[tuple[int, int]], block_size: int
) -> Step:
    """Sequences in blocks that lie anywhere; what no sequence has is not a number.

    Args:
        request: Kind of layer.
        lengths: Query tokens and all tokens, per sequence.
        block_size: Tokens per block.
    """
    generator = torch.Generator().manual_seed(7)
    dtype = getattr(torch, request.dtype)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    num_blocks = [-(-total // block_size) for _, total in lengths]
    ids = torch.randperm(sum(num_blocks) + 1, generator=generator)[1:].int()
    table = torch.zeros(len(lengths), max(num_blocks), dtype=torch.int32)
    shape = (sum(num_blocks) + 1, block_size, request.num_kv_heads, request.head_dim)
    caches = tuple(torch.full(shape, torch.nan, dtype=dtype) for _ in range(2))
    first = 0
    for row, (count, (_, total)) in enumerate(zip(num_blocks, lengths, strict=True)):
        own = ids[first : first + count]
        table[row, :count] = own
        first += count
        for cache in caches:
            tokens = drawn(count * block_size, request.num_kv_heads, request.head_dim)
            tokens[total:] = 0  # a block is read whole: what lies behind the end must be finite
            cache[own.long()] = tokens.view(count, *shape[1:])
    starts = torch.tensor([0, *(count for count, _ in lengths)]).cumsum(0).int()
    seq_lens = torch.tensor([total for _, total in lengths], dtype=torch.int32)
    num_tokens = int(starts[-1])
    common = CommonAttentionMetadata(
        num_reqs=len(lengths),
        num_tokens=num_tokens,
        max_query_len=max(count for count, _ in lengths),
        max_seq_len=int(seq_lens.max()),
        cu_seqlens_q=starts,
        cu_seqlens_q_cpu=starts,
        seq_lens=seq_lens,
        seq_lens_cpu=seq_lens,
        block_table=table,
        slot_mapping=torch.zeros(num_tokens, dtype=torch.int64),
    )
    kv = (num_tokens, request.num_kv_heads, request.head_dim)
    q = drawn(num_tokens, request.num_heads, request.head_dim)
    return Step(q, drawn(*kv), drawn(*kv), (caches[0], caches[1]), common, block_size)
