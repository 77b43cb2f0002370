"""From what the ranks measured to the KV cache they get."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from dougong.config import CacheConfig, Decision, EngineConfig
from dougong.config.decision import CORE, platform_author
from dougong.contracts import KVCacheConfig, KVCacheGroup, KVLayout
from dougong.errors import ConfigError, PluginError
from dougong.executor import LoadedRanks
from dougong.kv_cache import PoolSize, resolve_pool_size


@dataclass(frozen=True, slots=True)
class SizedCache:
    """A KV cache, as its three readers need it.

    Attributes:
        scheduler: For the scheduler.
        worker: For the ranks.
        size: Blocks, bytes and the reason.
        decisions: What was settled now.
    """

    scheduler: CacheConfig
    worker: KVCacheConfig
    size: PoolSize
    decisions: tuple[Decision, ...]


def size_kv_cache(config: EngineConfig, start: LoadedRanks) -> SizedCache:
    """Settle the number of blocks, and the block size where a backend needs another one.

    Weights and KV cache together stay inside the memory budget, whatever a rank said is available.

    Raises:
        ConfigError: An explicit size or block size cannot be had.
        PluginError: The ranks' groups contradict each other, or a platform proposed a size that
            cannot be had.
    """
    plan = config.kv_cache
    block_size, decisions = _resolve_block_size(config, start.groups)
    left = max(0, config.memory.budget_bytes - start.weight_bytes)
    reserved = max(layout.reserved_blocks for _, layout in start.groups)
    scheduler = config.scheduler
    with _blamed_on(plan.asked_by):
        size = resolve_pool_size(
            available_bytes=min(start.available_bytes, left),
            block_bytes=_block_bytes(start.groups),
            block_size=block_size,
            asked_blocks=plan.asked_blocks,
            asked_bytes=plan.asked_bytes,
            reserved_blocks=reserved,
            num_groups=len(start.groups),
            useful_token_slots=scheduler.max_num_seqs * scheduler.max_model_len,
        )
    author = plan.asked_by or CORE
    decisions.append(Decision("num_kv_blocks", size.num_blocks, author, size.reason))
    cache = CacheConfig(
        block_size=block_size,
        num_blocks=size.num_blocks,
        dtype=plan.dtype,
        enable_prefix_caching=plan.enable_prefix_caching,
        reserved_blocks=reserved,
        num_groups=len(start.groups),
    )
    groups = tuple(group for group, _ in start.groups)
    return SizedCache(cache, KVCacheConfig(size.num_blocks, groups), size, tuple(decisions))


def with_block_size(config: EngineConfig, block_size: int) -> EngineConfig:
    """The same configuration with the block size that the backends use."""
    return replace(config, kv_cache=replace(config.kv_cache, block_size=block_size))


@contextmanager
def _blamed_on(author: str) -> Iterator[None]:
    """A size that cannot be had is the user's to change, unless a platform asked for it.

    Raises:
        PluginError: The size came from a platform.
    """
    try:
        yield
    except ConfigError as exc:
        name = author.removeprefix(platform_author(""))
        if name == author:
            raise
        raise PluginError(
            f"{author} proposed a size of the KV cache that cannot be had: {exc}", plugin=name
        ) from exc


def _block_bytes(groups: Sequence[tuple[KVCacheGroup, KVLayout]]) -> int:
    """Bytes one block takes over all layers: each has every block in its own buffers."""
    return sum(len(group.layer_indices) * layout.block_bytes for group, layout in groups)


def _resolve_block_size(
    config: EngineConfig, groups: Sequence[tuple[KVCacheGroup, KVLayout]]
) -> tuple[int, list[Decision]]:
    sizes = {group.spec.block_size for group, _ in groups}
    if len(sizes) != 1:
        raise PluginError(
            f"The worker gave {len(groups)} KV cache groups with block sizes {sorted(sizes)}; in "
            "contract 1.0 every group has the same."
        )
    (size,) = sizes
    asked = config.kv_cache.block_size
    if size == asked:
        return size, []
    backends = ", ".join(sorted({layout.name for _, layout in groups}))
    if "block_size" in config.explicit:
        raise ConfigError(
            f"block_size={asked} was asked for, and the KV layout {backends} uses {size}. Leave "
            "block_size unset, or choose another attention backend."
        )
    why = f"the KV layout {backends} takes no blocks of {asked}"
    return size, [Decision("block_size", size, f"backend {backends}", why)]
