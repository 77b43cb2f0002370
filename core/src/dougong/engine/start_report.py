"""What the engine tells of its start: what was chosen, by whom, why, and what it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dougong.config import Decision
from dougong.config.pooling import PoolingConfig
from dougong.engine.fallback_warnings import fallback_warnings
from dougong.engine.graph_report import GraphReport
from dougong.engine.start_block import start_block
from dougong.messages import LoRARef
from dougong.planner import ExecutionPlan
from dougong.platforms import PluginTable, Verdict
from dougong.scheduler import RequestLimits

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
        conformance: The platform's certificate in one sentence, or that it has none.
        plugins: Every installed plugin in one sentence, those that failed included.
        plugin_faults: Those of them that are broken, refused or shadowed.
        decisions: One per option.
        plan: What runs, and everything that was passed over or fell back, with the reasons.
        notes: Oddities that ranks told of while they loaded.
        graphs: Captured steps; ``None``: every step runs eagerly.
        memory: Of the device.
        num_kv_blocks: Blocks that requests can hold.
        block_size: Tokens per block.
        limits: What one request may ask for.
        takes_grammar_masks: Whether requests can ask for structured output here.
        loras: Adapters that were loaded at the start.
        pooling: How vectors are made; ``None``: the model generates text.
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
    plan: ExecutionPlan
    takes_grammar_masks: bool = True
    loras: tuple[LoRARef, ...] = ()
    pooling: PoolingConfig | None = None
    seed: int = 0
    conformance: str = ""
    plugins: tuple[str, ...] = ()
    plugin_faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    graphs: GraphReport | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def lines(self) -> list[str]:
        """The block that the log shows: see `start_block`."""
        return start_block(self)

    def warnings(self) -> tuple[str, ...]:
        """Fallbacks, graphs that did not fit, notes of the plan and oddities, one sentence each,
        none of them twice."""
        known = set(map(str, self.plan.fallbacks))
        notes = [note for note in self.notes if note not in known]
        dropped = self.graphs.warning() if self.graphs else ""
        told = (*fallback_warnings(self.plan), dropped, *self.plan.notes, *notes)
        return tuple(dict.fromkeys(one for one in told if one))

    @property
    def attention_backends(self) -> dict[str, int]:
        """Backend → layers."""
        return self.plan.attention_backends()

    @property
    def implementations(self) -> dict[str, dict[str, int]]:
        """Op → implementation → how many ops run it."""
        return self.plan.implementations()
