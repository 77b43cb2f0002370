"""Host side of the KV cache: block numbers and nothing else; no torch."""

from __future__ import annotations

from dougong.kv_cache.allocator import (
    BlockAllocator,
    KVCacheUsage,
    SharedBlocks,
    num_shared_blocks,
)
from dougong.kv_cache.block_pool import BlockPool
from dougong.kv_cache.block_table import BlockTable
from dougong.kv_cache.prefix_index import BlockHasher, PrefixIndex
from dougong.kv_cache.sizing import PoolSize, resolve_pool_size

__all__ = [
    "BlockAllocator",
    "BlockHasher",
    "BlockPool",
    "BlockTable",
    "KVCacheUsage",
    "PoolSize",
    "PrefixIndex",
    "SharedBlocks",
    "num_shared_blocks",
    "resolve_pool_size",
]
