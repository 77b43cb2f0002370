"""From what the ranks measured to the KV cache they get."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from dougong.config import CacheConfig, Decision, EngineConfig
from dougong.config.decision import CORE, platform_author
from dougong.contracts import KVCacheConfig, KVCacheGroup, KVLayout
from dougong.errors import ConfigError, DougongError, PluginError
from dougong.executor import LoadedRanks
from dougong.kv_cache import PoolSize, resolve_pool_size
from dougong.planner.layout_rules import most_blocks


@dataclass(frozen=True, slots=True)
class SizedCache:
    """A KV cache, as its three readers need it.

    Attributes:
        scheduler: For the scheduler.
        worker: For the ranks.
        size: Blocks, bytes and the reason.
        decision: The number of blocks, who settled it and why.
    """

    scheduler: CacheConfig
    worker: KVCacheConfig
    size: PoolSize
    decision: Decision


def size_kv_cache(config: EngineConfig, start: LoadedRanks) -> SizedCache:
    """Settle the number of blocks, of the size that was planned.

    Weights and KV cache together stay inside the memory budget, whatever a rank said is available.

    Args:
        config: With the plan's block size; see `with_block_size`.
        start: What the ranks measured.

    Raises:
        ConfigError: An explicit size cannot be had.
        PluginError: The ranks' groups have another block size than was planned, or a platform
            proposed a size that cannot be had.
    """
    asked, block_size = config.kv_cache, config.kv_cache.block_size
    if not start.groups:
        return _without_cache(config)
    _check_groups(block_size, start.groups)
    left = max(0, config.memory.budget_bytes - start.weight_bytes)
    reserved = max(layout.reserved_blocks for _, layout in start.groups)
    scheduler = config.scheduler
    with _blamed_on(asked.asked_by):
        size = resolve_pool_size(
            available_bytes=min(start.available_bytes, left),
            block_bytes=_block_bytes(start.groups),
            block_size=block_size,
            asked_blocks=asked.asked_blocks,
            asked_bytes=asked.asked_bytes,
            reserved_blocks=reserved,
            num_groups=len(start.groups),
            useful_token_slots=scheduler.max_num_seqs * scheduler.max_model_len,
            most_blocks=min(most_blocks(layout, block_size) for _, layout in start.groups),
        )
    author = asked.asked_by or CORE
    decision = Decision("num_kv_blocks", size.num_blocks, author, size.reason)
    cache = CacheConfig(
        block_size=block_size,
        num_blocks=size.num_blocks,
        dtype=asked.dtype,
        enable_prefix_caching=asked.enable_prefix_caching,
        reserved_blocks=reserved,
        num_groups=len(start.groups),
    )
    groups = tuple(group for group, _ in start.groups)
    return SizedCache(cache, KVCacheConfig(size.num_blocks, groups), size, decision)


def _without_cache(config: EngineConfig) -> SizedCache:
    """Of a model that keeps no keys and values: every text is computed in one step."""
    asked, why = config.kv_cache, "the model keeps no keys and values"
    cache = CacheConfig(
        block_size=asked.block_size,
        num_blocks=0,
        dtype=asked.dtype,
        enable_prefix_caching=False,
        num_groups=0,
    )
    size = PoolSize(0, 0, 0, why)
    return SizedCache(cache, KVCacheConfig(0, ()), size, Decision("num_kv_blocks", 0, CORE, why))


def with_block_size(config: EngineConfig, block_size: int) -> EngineConfig:
    """The same configuration with the block size that the backends use."""
    return replace(config, kv_cache=replace(config.kv_cache, block_size=block_size))


def check_block_sizes(
    scheduler_block_size: int, groups: Sequence[tuple[KVCacheGroup, KVLayout]]
) -> None:
    """Refuse a scheduler that counts in other blocks than the layouts store.

    Its block tables would name wrong places without any error, so this is asked once more when
    both are there.

    Raises:
        DougongError: They differ.
    """
    for group, layout in groups:
        size = group.spec.block_size
        if scheduler_block_size != size or size not in layout.block_sizes:
            raise DougongError(
                f"The scheduler counts in blocks of {scheduler_block_size} tokens, and the KV "
                f"cache of layers {_listed(group.layer_indices)} has blocks of {size} in layout "
                f"{layout.name}, which takes {_listed(layout.block_sizes)}. Tokens would be "
                "written to wrong places, so nothing is started; report this."
            )


def _check_groups(planned: int, groups: Sequence[tuple[KVCacheGroup, KVLayout]]) -> None:
    for group, layout in groups:
        if group.spec.block_size != planned:
            raise PluginError(
                f"The worker gave a KV cache group with blocks of {group.spec.block_size} tokens "
                f"(layers {_listed(group.layer_indices)}, layout {layout.name}), and the plan it "
                f"was told to obey says {planned}. Report this to its vendor."
            )


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


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _block_bytes(groups: Sequence[tuple[KVCacheGroup, KVLayout]]) -> int:
    """Bytes one block takes over all layers: each has every block in its own buffers."""
    return sum(len(group.layer_indices) * layout.block_bytes for group, layout in groups)
