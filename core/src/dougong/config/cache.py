"""The resolved KV cache: every value settled before the first request."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from dougong.errors import ConfigError

UNBOUNDED = sys.maxsize


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """KV cache geometry as the scheduler and the worker share it.

    Attributes:
        block_size: Tokens per block; every KV cache group uses the same in contract 1.0.
        num_blocks: Blocks in the one pool that all groups draw from, the reserved ones included.
        dtype: Name of the dtype in which keys and values are stored.
        enable_prefix_caching: Keep finished blocks under the hash of their tokens for reuse.
        reserved_blocks: The first blocks of the pool, kept by the KV layout for itself; a
            request never gets one.
        num_groups: KV cache groups; a request has one block table for each. 0: the model keeps no
            keys and values.

    Raises:
        ConfigError: A value is out of range; all problems in one message.
    """

    block_size: int
    num_blocks: int
    dtype: str = "bfloat16"
    enable_prefix_caching: bool = True
    reserved_blocks: int = 0
    num_groups: int = 1

    def __post_init__(self) -> None:
        """Check every field."""
        problems = tuple(self._problems())
        if problems:
            raise ConfigError("The KV cache configuration cannot work:", problems)

    def _problems(self) -> list[str]:
        problems = [
            f"{name}={value} must be at least {least}."
            for name, value, least in (
                ("block_size", self.block_size, 1),
                ("num_groups", self.num_groups, 0),
                ("reserved_blocks", self.reserved_blocks, 0),
            )
            if value < least
        ]
        if not problems and self.num_usable_blocks < self.num_groups:
            problems.append(
                f"num_blocks={self.num_blocks} leaves {max(0, self.num_usable_blocks)} usable, "
                f"with {self.reserved_blocks} reserved, and one token needs {self.num_groups}. "
                "Give the KV cache more memory or use a smaller block_size."
            )
        return problems

    @property
    def num_usable_blocks(self) -> int:
        """Blocks that requests can hold."""
        return self.num_blocks - self.reserved_blocks

    @property
    def num_token_slots(self) -> int:
        """Tokens whose keys and values fit at once, over all requests; `UNBOUNDED` where none are
        kept."""
        if not self.num_groups:
            return UNBOUNDED
        return self.num_usable_blocks // self.num_groups * self.block_size
