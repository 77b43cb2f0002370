"""What one request holds of the KV cache."""

from __future__ import annotations


class BlockTable:
    """The blocks of one request, one list per KV cache group, in position order.

    Attributes:
        block_ids: Token ``t`` lies in ``block_ids[group][t // block_size]``. Grows in place.
        num_tokens: Tokens that fit into those blocks.
        hashes: Hashes of the leading full blocks, as far as they were needed; they outlive a
            preemption, since the tokens do.
        num_indexed: Leading blocks that were offered to the prefix index.
    """

    __slots__ = ("block_ids", "hashes", "num_indexed", "num_tokens")

    def __init__(self, num_groups: int) -> None:
        self.block_ids: tuple[list[int], ...] = tuple([] for _ in range(num_groups))
        self.num_tokens = 0
        self.hashes: list[bytes] = []
        self.num_indexed = 0
