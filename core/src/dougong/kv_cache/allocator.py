"""Blocks for one request at a time: allocate, grow, share, free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dougong.config.cache import CacheConfig
from dougong.kv_cache.block_pool import BlockPool
from dougong.kv_cache.block_table import BlockTable
from dougong.kv_cache.prefix_index import BlockHasher, PrefixIndex

SharedBlocks = tuple[Sequence[int], ...]
"""Full blocks that hold a prefix already: one equally long sequence per KV cache group."""


def num_shared_blocks(shared: Sequence[Sequence[int]]) -> int:
    """Blocks of each group; 0 where there is no group."""
    return len(shared[0]) if shared else 0


@dataclass(frozen=True, slots=True)
class KVCacheUsage:
    """The pool at one moment.

    Attributes:
        num_usable_blocks: Blocks that requests can hold.
        num_held_blocks: Blocks that requests do hold; a shared one counts once.
        num_cached_blocks: Blocks nobody holds whose content could still be reused.
        num_evictions: Cached blocks given up since the start.
        num_queried_tokens: Tokens looked up in the prefix cache since the start.
        num_hit_tokens: Those of them that were found.
    """

    num_usable_blocks: int
    num_held_blocks: int
    num_cached_blocks: int
    num_evictions: int
    num_queried_tokens: int
    num_hit_tokens: int

    @property
    def held_fraction(self) -> float:
        """Held blocks over usable ones, 0 to 1; 0 where there are none."""
        return self.num_held_blocks / self.num_usable_blocks if self.num_usable_blocks else 0.0


class BlockAllocator:
    """Gives requests their blocks in every KV cache group, all or nothing."""

    def __init__(self, config: CacheConfig) -> None:
        self.block_size = config.block_size
        self.num_groups = config.num_groups
        self.is_prefix_caching = config.enable_prefix_caching and config.num_groups > 0
        self.pool = BlockPool(
            config.num_blocks, reserved_blocks=config.reserved_blocks, on_evict=self._forget
        )
        self.indexes = tuple(PrefixIndex() for _ in range(config.num_groups))
        self._hasher = BlockHasher(config.block_size)
        self._nothing: SharedBlocks = ((),) * config.num_groups
        self._num_queried_tokens = 0
        self._num_hit_tokens = 0

    def new_table(self, owner: str = "") -> BlockTable:
        """A table without blocks; see `BlockTable` for ``owner``."""
        return BlockTable(self.num_groups, owner)

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that ``num_tokens`` tokens of one request take, over all groups."""
        return -(-num_tokens // self.block_size) * self.num_groups

    def find_prefix(self, table: BlockTable, token_ids: Sequence[int]) -> SharedBlocks:
        """The longest cached prefix of ``token_ids``, in full blocks; nothing is taken yet.

        It never covers the last token: that one must be computed for there to be logits. Only as
        many blocks are hashed as are found, plus one.
        """
        if not self.is_prefix_caching:
            return self._nothing
        found: tuple[list[int], ...] = tuple([] for _ in range(self.num_groups))
        hashes = table.hashes
        for position in range((len(token_ids) - 1) // self.block_size):
            if position == len(hashes):
                self._hasher.extend(hashes, token_ids, position + 1, table.salt)
            blocks = [index.find(hashes[position]) for index in self.indexes]
            if None in blocks:
                break
            for group, block in zip(found, blocks, strict=True):
                assert block is not None
                group.append(block)
        return found

    def fork(self, parent: BlockTable, num_shared_tokens: int) -> SharedBlocks:
        """The parent's blocks that a child with the same leading tokens can share.

        Only full blocks: the tail is written by both, so the child computes its own.

        Args:
            parent: A table whose first ``num_shared_tokens`` tokens are computed.
            num_shared_tokens: Tokens that both have in common, the child's last one left out.
        """
        num_blocks = num_shared_tokens // self.block_size
        return tuple(group[:num_blocks] for group in parent.block_ids)

    def num_free_needed(self, num_tokens: int, shared: SharedBlocks) -> int:
        """Free blocks that `try_allocate` with the same arguments uses up."""
        needed = self.num_blocks_for(num_tokens)
        for group in shared:
            needed -= len(group) - self.pool.num_unheld(group)
        return needed

    def try_allocate(
        self, table: BlockTable, num_tokens: int, shared: SharedBlocks | None = None
    ) -> bool:
        """Fill an empty ``table`` with blocks for ``num_tokens`` tokens, or change nothing.

        Args:
            table: Without blocks: new, or freed when its request was preempted.
            num_tokens: Tokens that must fit.
            shared: Blocks of its leading tokens from `find_prefix` or `fork`, taken by reference.
        """
        shared = self._nothing if shared is None else shared
        if self.num_free_needed(num_tokens, shared) > self.pool.num_free:
            return False
        num_blocks = -(-num_tokens // self.block_size)
        for group in shared:
            self.pool.share(group)
        for group, held in zip(table.block_ids, shared, strict=True):
            fresh = self.pool.try_allocate(num_blocks - len(held))
            assert fresh is not None, "the free blocks were counted above"
            group += held
            group += fresh
        table.num_tokens = num_blocks * self.block_size
        table.num_indexed = num_shared_blocks(shared)
        return True

    def try_append(self, table: BlockTable) -> tuple[list[int], ...] | None:
        """One more block in every group; the new ones, or ``None`` and nothing taken."""
        taken = self.pool.try_allocate(self.num_groups)
        if taken is None:
            return None
        for group, block in zip(table.block_ids, taken, strict=True):
            group.append(block)
        table.num_tokens += self.block_size
        return tuple([block] for block in taken)

    def index_computed(
        self, table: BlockTable, token_ids: Sequence[int], num_computed_tokens: int
    ) -> None:
        """Let others find the blocks that ``num_computed_tokens`` leading tokens have filled."""
        num_full = num_computed_tokens // self.block_size
        if not self.is_prefix_caching or num_full <= table.num_indexed:
            return
        self._hasher.extend(table.hashes, token_ids, num_full, table.salt)
        for position in range(table.num_indexed, num_full):
            for index, group in zip(self.indexes, table.block_ids, strict=True):
                if index.try_add(table.hashes[position], group[position]):
                    self.pool.mark_cacheable(group[position])
        table.num_indexed = num_full

    def free(self, table: BlockTable) -> None:
        """Give back every block of ``table``; its hashes stay, since its tokens do."""
        for group in table.block_ids:
            self.pool.release(group)
        table.block_ids = tuple([] for _ in range(self.num_groups))
        table.num_tokens = 0
        table.num_indexed = 0

    def count_lookup(self, num_tokens: int, num_hit_tokens: int) -> None:
        """Note what came of one request's look-up, once it is admitted."""
        if self.is_prefix_caching:
            self._num_queried_tokens += num_tokens
            self._num_hit_tokens += num_hit_tokens

    def drop_prefixes(self) -> None:
        """Forget every cached prefix that no request holds."""
        self.pool.drop_cached()

    def usage(self) -> KVCacheUsage:
        """The pool now."""
        return KVCacheUsage(
            num_usable_blocks=self.pool.num_usable,
            num_held_blocks=self.pool.num_usable - self.pool.num_free,
            num_cached_blocks=self.pool.num_cached,
            num_evictions=self.pool.num_evictions,
            num_queried_tokens=self._num_queried_tokens,
            num_hit_tokens=self._num_hit_tokens,
        )

    def _forget(self, block: int) -> None:
        for index in self.indexes:
            if index.forget(block):
                return
