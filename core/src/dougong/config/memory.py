"""How much of the device's memory the engine may take, and which limit counted."""

from __future__ import annotations

from dougong.config.decision import CORE
from dougong.config.engine import MemoryConfig
from dougong.config.model import ModelConfig
from dougong.config.wishes import Wishes
from dougong.contracts.capabilities import DeviceFacts

OWN_MEMORY_SHARE = 0.9
HOST_MEMORY_SHARE = 0.5
GIB = 1024**3


def resolve_memory(wishes: Wishes, facts: DeviceFacts) -> MemoryConfig:
    """The limit that counts and the share of it the engine may use.

    Unset, the share is `OWN_MEMORY_SHARE` on a device with memory of its own, `HOST_MEMORY_SHARE`
    where the memory is the host's and other programs live in it too, and all of it where the user
    gave the KV cache a size: that size is then held against the limit alone, whatever share the
    platform prefers, and the decision says so.
    """
    has_size = any(wishes.is_explicit(name) for name in ("kv_cache_memory_bytes", "num_kv_blocks"))
    if has_size:
        share, why = 1.0, "the KV cache has an explicit size, held against the whole limit"
        why += _drop_preferred_share(wishes)
    elif facts.is_integrated:
        share, why = HOST_MEMORY_SHARE, "the memory is the host's; the rest is left to the system"
    else:
        share, why = OWN_MEMORY_SHARE, "the rest is left to the driver and to fragmentation"
    name = "device_memory_utilization"
    utilization = float(wishes.settle_or(name, share, CORE, why, is_default=not has_size))
    if not 0 < utilization <= 1:
        wishes.refuse(
            f"device_memory_utilization={utilization} must be above 0 and at most 1 "
            "(0.9: nine tenths of the limit).",
            of=name,
        )
        utilization = share
    memory = MemoryConfig(
        machine_bytes=facts.memory_total_bytes,
        quota_bytes=facts.memory_quota_bytes,
        quota_source=facts.memory_quota_source,
        utilization=utilization,
        free_bytes=None if has_size else facts.memory_free_bytes,
    )
    wishes.settle("memory_limit", memory.limit_bytes, CORE, describe_limit(memory))
    return memory


def _drop_preferred_share(wishes: Wishes) -> str:
    """Take back a platform's share; the words that tell of it, for the reason."""
    wish = wishes.asked.get("device_memory_utilization")
    if wish is None or wishes.is_explicit("device_memory_utilization"):
        return ""
    del wishes.asked["device_memory_utilization"]
    return f"; {wish.author} would have {wish.value} ({wish.reason})"


def kv_fits(
    wishes: Wishes, memory: MemoryConfig, model: ModelConfig, *, weight_bytes: int, kv_bytes: int
) -> bool:
    """Whether an explicit KV cache stays inside the budget; if not it is refused, with the numbers.

    Weights above the budget are a doubt, whatever the size of the cache.

    Args:
        wishes: Both are noted there.
        memory: The budget.
        model: For its name.
        weight_bytes: Of the loaded parameters.
        kv_bytes: Explicit size of the KV cache; 0: automatic.
    """
    budget = memory.budget_bytes
    of_limit = f"{memory.utilization:g} of {describe_limit(memory)}"
    if memory.free_bytes == budget:
        of_limit += f"; {_gib(budget)} of it is free"
    if weight_bytes >= budget:
        wishes.doubts.append(
            f"The weights of {model.reference} take {_gib(weight_bytes)}, and {_gib(budget)} may "
            f"be used ({of_limit}). Use a narrower dtype, a smaller model, or free memory."
        )
    elif weight_bytes + kv_bytes > budget:
        wishes.refuse(
            f"A KV cache of {_gib(kv_bytes)} was asked for; with {_gib(weight_bytes)} of weights "
            f"that is {_gib(weight_bytes + kv_bytes)}, and {_gib(budget)} may be used "
            f"({of_limit}). Ask for at most {_gib(budget - weight_bytes)}, or leave the size "
            "unset.",
            of="num_kv_blocks",
        )
        return False
    return True


def describe_limit(memory: MemoryConfig) -> str:
    """The machine's memory, the quota, and which of them counts."""
    machine = f"machine memory {_gib(memory.machine_bytes)}"
    if memory.quota_bytes is None:
        return f"{machine}, no quota: the machine memory counts"
    source = f" ({memory.quota_source})" if memory.quota_source else ""
    counts = "the quota" if memory.quota_bytes < memory.machine_bytes else "the machine memory"
    return f"{machine}, quota {_gib(memory.quota_bytes)}{source}: {counts} counts"


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.2f} GiB"
