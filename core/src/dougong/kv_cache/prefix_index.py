"""Which token prefixes have blocks.

A full block is known by the hash of its own tokens and of the hash of the block before it, so equal
keys mean equal prefixes. The hash is BLAKE2b cut to 128 bits and starts from random bytes made with
the index. Nobody can look for two prompts that collide without those bytes, and by chance a
collision is expected after about 2**64 blocks; so tokens are not stored or compared on a hit.
"""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Sequence
from hashlib import blake2b

HASH_BYTES = 16


class BlockHasher:
    """Hashes the full blocks of one token sequence after another, each block once.

    Args:
        block_size: Tokens per block.
        root: What the first block's parent hash is; random when not given.
    """

    def __init__(self, block_size: int, *, root: bytes | None = None) -> None:
        self._block_size = block_size
        self._root = secrets.token_bytes(HASH_BYTES) if root is None else root

    def extend(
        self, hashes: list[bytes], token_ids: Sequence[int], num_blocks: int, salt: bytes = b""
    ) -> None:
        """Append to ``hashes`` until the first ``num_blocks`` blocks of ``token_ids`` have theirs.

        Args:
            hashes: Hashes of the leading blocks, from earlier calls with the same tokens.
            token_ids: Ids from 0 to ``2**32 - 1``; ``num_blocks`` full blocks of them at least.
            num_blocks: Hashes wanted.
            salt: What else than tokens the content of blocks follows from; equal tokens with
                different salts have different hashes. Empty or `HASH_BYTES` long.
        """
        block_size = self._block_size
        parent = hashes[-1] if hashes else self._root + salt
        for start in range(len(hashes) * block_size, num_blocks * block_size, block_size):
            content = array("I", token_ids[start : start + block_size]).tobytes()
            parent = blake2b(parent + content, digest_size=HASH_BYTES).digest()
            hashes.append(parent)


class PrefixIndex:
    """From block hash to block, both ways, for one KV cache group."""

    def __init__(self) -> None:
        self._block_of: dict[bytes, int] = {}
        self._hash_of: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._block_of)

    def find(self, block_hash: bytes) -> int | None:
        """The block with this content, if there is one."""
        return self._block_of.get(block_hash)

    def try_add(self, block_hash: bytes, block: int) -> bool:
        """Remember ``block``, unless another block with the same content is known already."""
        if self._block_of.setdefault(block_hash, block) != block:
            return False
        self._hash_of[block] = block_hash
        return True

    def forget(self, block: int) -> bool:
        """Forget ``block``; false where it was not known."""
        block_hash = self._hash_of.pop(block, None)
        if block_hash is None:
            return False
        del self._block_of[block_hash]
        return True

    def items(self) -> list[tuple[bytes, int]]:
        """Every hash with its block; for audits."""
        return list(self._block_of.items())
