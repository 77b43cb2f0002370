"""Which blocks are free, which are held and by how many, which are worth keeping.

Every usable block is in exactly one state:

* *blank*: nobody holds it and its content is worthless;
* *cached*: nobody holds it, but the prefix index knows its content; least recently used first out;
* *held*: ``reference_count(block) >= 1`` requests have it in their block tables.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence


class BlockPool:
    """All blocks of the KV cache, as numbers; every operation is O(1) per block.

    Args:
        num_blocks: Blocks in the pool, the reserved ones included.
        reserved_blocks: Blocks ``0 … reserved_blocks - 1`` are never handed out.
        on_evict: Called with a cached block when its content is given up.
    """

    def __init__(
        self,
        num_blocks: int,
        *,
        reserved_blocks: int = 0,
        on_evict: Callable[[int], None] | None = None,
    ) -> None:
        self.num_blocks = num_blocks
        self.reserved_blocks = reserved_blocks
        self.num_evictions = 0
        self._on_evict = on_evict
        self._blank = list(range(num_blocks - 1, reserved_blocks - 1, -1))
        # An OrderedDict, not a dict: taking the oldest key of a dict that is drained from the
        # front walks over all the keys taken before.
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._is_cacheable = bytearray(num_blocks)
        self._reference_counts = [0] * num_blocks

    @property
    def num_usable(self) -> int:
        """Blocks that requests can hold."""
        return self.num_blocks - self.reserved_blocks

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds: blank ones and cached ones."""
        return len(self._blank) + len(self._cached)

    @property
    def num_cached(self) -> int:
        """Free blocks whose content the prefix index still knows."""
        return len(self._cached)

    def reference_count(self, block: int) -> int:
        """How many block tables ``block`` is in."""
        return self._reference_counts[block]

    def free_blocks(self) -> tuple[Sequence[int], Sequence[int]]:
        """The blank blocks and the cached ones (next to be evicted first); for audits."""
        return tuple(self._blank), tuple(self._cached)

    def num_unheld(self, blocks: Iterable[int]) -> int:
        """How many of ``blocks`` count as free now and would not after `share`."""
        counts = self._reference_counts
        return sum(1 for block in blocks if not counts[block])

    def try_allocate(self, num_blocks: int) -> list[int] | None:
        """Take ``num_blocks`` blocks, or take none and return ``None``.

        Blank ones go first; cached ones are evicted only when those run out.
        """
        blank = self._blank
        if num_blocks > len(blank):
            if num_blocks > len(blank) + len(self._cached):
                return None
            self._evict(num_blocks - len(blank))
        counts = self._reference_counts
        taken = []
        for _ in range(num_blocks):
            block = blank.pop()
            counts[block] = 1
            taken.append(block)
        return taken

    def share(self, blocks: Iterable[int]) -> None:
        """Add one holder to each of ``blocks``, which are held or cached."""
        counts = self._reference_counts
        for block in blocks:
            if not counts[block]:
                del self._cached[block]
            counts[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Take one holder from each of ``blocks``, given in position order.

        The last ones become the first to be evicted: a prefix is useless without its beginning.
        """
        counts = self._reference_counts
        for block in reversed(blocks):
            assert counts[block] > 0, f"block {block} is released but nobody holds it"
            counts[block] -= 1
            if not counts[block]:
                if self._is_cacheable[block]:
                    self._cached[block] = None
                else:
                    self._blank.append(block)

    def mark_cacheable(self, block: int) -> None:
        """Keep the content of ``block``, which is held, once nobody holds it any more."""
        assert self._reference_counts[block] > 0, f"block {block} has no content to keep"
        self._is_cacheable[block] = 1

    def drop_cached(self) -> None:
        """Give up the content of every cached block."""
        self._evict(len(self._cached))

    def _evict(self, num_blocks: int) -> None:
        for _ in range(num_blocks):
            block, _ = self._cached.popitem(last=False)
            self._is_cacheable[block] = 0
            self._blank.append(block)
            if self._on_evict is not None:
                self._on_evict(block)
        self.num_evictions += num_blocks
