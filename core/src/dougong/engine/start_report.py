"""What the engine tells of its start: what was chosen, by whom, why, and what it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dougong.config import Decision
from dougong.platforms import PluginTable, Verdict
from dougong.scheduler import RequestLimits

GIB = 1024**3
_FAULTY = (Verdict.BROKEN, Verdict.REFUSED, Verdict.SHADOWED)


def fault_sentences(table: PluginTable) -> tuple[str, ...]:
    """One sentence for each plugin that something is wrong with, although it stopped nothing."""
    return tuple(row.sentence() for row in table.rows if row.verdict in _FAULTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport:
    """Bytes on one device.

    Attributes:
        limit: Physical memory or quota, whichever counts.
        budget: The share of it the engine may use.
        weights: Loaded parameters.
        kv_cache: The KV cache.
    """

    limit: int
    budget: int
    weights: int
    kv_cache: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartReport:
    """One engine, ready.

    Attributes:
        model: Reference as the user wrote it.
        architecture: Name of the model class.
        vocab_size: Token ids run from 0 to ``vocab_size - 1``.
        dtype: Compute dtype.
        platform: Name of the platform.
        devices: Names of the devices in use.
        platform_reasons: Why this platform and these devices, one sentence each.
        plugins: Every installed plugin in one sentence, those that failed included.
        plugin_faults: Those of them that are broken, refused or shadowed.
        decisions: One per option.
        attention_backends: Backend → layers.
        implementations: Op → implementation → how many times bound.
        notes: Fallbacks and oddities.
        memory: Of the device.
        num_kv_blocks: Blocks that requests can hold.
        block_size: Tokens per block.
        limits: What one request may ask for.
        seed: Of draws without a seed of their own.
        seconds: What each part of the start took, by name.
    """

    model: str
    architecture: str
    vocab_size: int
    dtype: str
    platform: str
    devices: tuple[str, ...]
    platform_reasons: tuple[str, ...]
    decisions: tuple[Decision, ...]
    memory: MemoryReport
    num_kv_blocks: int
    block_size: int
    limits: RequestLimits
    seed: int = 0
    plugins: tuple[str, ...] = ()
    plugin_faults: tuple[str, ...] = ()
    attention_backends: Mapping[str, int] = field(default_factory=dict)
    implementations: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def lines(self) -> list[str]:
        """The block that the log shows: about a dozen lines.

        Left out are values that the core takes everywhere; `to_json` has them all. Notes are not
        among the lines: they are logged as warnings, so that no quieter log hides a fallback.
        """
        memory, took = self.memory, sum(self.seconds.values())
        return [
            f"{self.model} ({self.architecture}, {self.dtype}) on platform {self.platform}: "
            f"{', '.join(self.devices) or 'no device named'}",
            *(f"  {reason}" for reason in self.platform_reasons),
            *(f"  {decision}" for decision in self.decisions if not decision.is_default),
            f"  attention: {_counts(self.attention_backends)}; ops: {_ops(self.implementations)}",
            *(f"  plugin at fault: {sentence}" for sentence in self.plugin_faults),
            f"  memory: {_gib(memory.weights)} weights and {_gib(memory.kv_cache)} KV cache of "
            f"{_gib(memory.budget)}; room for {self.limits.num_token_slots} tokens in "
            f"{self.num_kv_blocks} blocks of {self.block_size}",
            f"  ready after {took:.1f} s ({_seconds(self.seconds)})",
        ]


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} x {count}" for name, count in counts.items()) or "none"


def _ops(implementations: Mapping[str, Mapping[str, int]]) -> str:
    """Ops by the family of what they are bound to: the part of its name before the slash."""
    by_family: dict[str, list[str]] = {}
    for op, bound in implementations.items():
        families = dict.fromkeys(name.partition("/")[0] for name in bound)
        by_family.setdefault(" and ".join(families), []).append(op)
    if len(by_family) == 1:
        (family,) = by_family
        return f"all {len(implementations)} bound to {family}"
    parts = (f"{', '.join(ops)} bound to {family}" for family, ops in by_family.items())
    return "; ".join(parts) or "none"


def _seconds(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.1f}" for name, value in seconds.items())


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.2f} GiB"
