"""What one request holds of the KV cache."""

from __future__ import annotations

from hashlib import blake2b

from dougong.kv_cache.prefix_index import HASH_BYTES


class BlockTable:
    """The blocks of one request, one list per KV cache group, in position order.

    Args:
        num_groups: KV cache groups.
        owner: Whose weights the content follows from beside the tokens, such as an adapter's name
            and number; empty: the model's alone. Tables of different owners share no cached block.

    Attributes:
        block_ids: Token ``t`` lies in ``block_ids[group][t // block_size]``. Grows in place.
        num_tokens: Tokens that fit into those blocks.
        hashes: Hashes of the leading full blocks, as far as they were needed; they outlive a
            preemption, since the tokens do.
        num_indexed: Leading blocks that were offered to the prefix index.
        salt: Of its hashes.
    """

    __slots__ = ("block_ids", "hashes", "num_indexed", "num_tokens", "salt")

    def __init__(self, num_groups: int, owner: str = "") -> None:
        self.block_ids: tuple[list[int], ...] = tuple([] for _ in range(num_groups))
        self.num_tokens = 0
        self.hashes: list[bytes] = []
        self.num_indexed = 0
        self.salt = blake2b(owner.encode(), digest_size=HASH_BYTES).digest() if owner else b""
