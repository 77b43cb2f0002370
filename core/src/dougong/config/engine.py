"""The resolved configuration: one frozen part per subsystem, every value settled."""

from __future__ import annotations

from dataclasses import dataclass, field

from dougong.config.graphs import GraphConfig
from dougong.config.lora import LoRAConfig
from dougong.config.model import ModelConfig
from dougong.config.pooling import PoolingConfig
from dougong.config.scheduler import SchedulerConfig
from dougong.contracts.config_view import ConfigView


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeConfig:
    """How the model is computed.

    Attributes:
        dtype: Of weights and activations.
        attention_backend: A namespaced key; ``None``: the first that supports the layers.
        enforce_eager: No graph capture and no compilation.
        seed: Of everything that draws without a seed of its own.
        execution: ``"flat"`` or ``"eager"``; ``None``: flat wherever the model is a list of ops.
    """

    dtype: str
    attention_backend: str | None
    enforce_eager: bool
    seed: int
    execution: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfig:
    """What the engine may take of the device.

    Attributes:
        machine_bytes: Physical memory of the device.
        quota_bytes: A limit below it; ``None``: none.
        quota_source: Where the quota was read.
        utilization: Share of the limit that the engine may use.
        free_bytes: What others leave free now, where that bounds an automatic size too.
    """

    machine_bytes: int
    quota_bytes: int | None
    quota_source: str
    utilization: float
    free_bytes: int | None = None

    @property
    def limit_bytes(self) -> int:
        """The smaller of the physical memory and the quota: what counts."""
        if self.quota_bytes is None:
            return self.machine_bytes
        return min(self.machine_bytes, self.quota_bytes)

    @property
    def budget_bytes(self) -> int:
        """Bytes for weights, activations and KV cache together."""
        budget = int(self.limit_bytes * self.utilization)
        return budget if self.free_bytes is None else min(budget, self.free_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCachePlan:
    """The KV cache as far as it is known before the weights are loaded.

    Attributes:
        dtype: Of the stored elements.
        block_size: Tokens per block.
        enable_prefix_caching: Reuse the KV of equal prefixes.
        asked_blocks: The number of blocks that somebody asked for.
        asked_bytes: The user's size in bytes; at most one of the two is set.
        asked_by: Who asked; see `Decision.author`. Empty: nobody did.
    """

    dtype: str
    block_size: int
    enable_prefix_caching: bool
    asked_blocks: int | None = None
    asked_bytes: int | None = None
    asked_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Everything the engine was told, settled before anything costly begins."""

    model: ModelConfig
    compute: ComputeConfig
    memory: MemoryConfig
    kv_cache: KVCachePlan
    scheduler: SchedulerConfig
    graphs: GraphConfig = field(default_factory=GraphConfig)
    lora: LoRAConfig | None = None
    pooling: PoolingConfig | None = None
    explicit: frozenset[str] = frozenset()

    def view(self) -> ConfigView:
        """The same as a plugin sees it."""
        return ConfigView(
            model=self.model.reference,
            architecture=self.model.architecture,
            hf_config=self.model.hf_config,
            dtype=self.compute.dtype,
            kv_cache_dtype=self.kv_cache.dtype,
            max_model_len=self.scheduler.max_model_len,
            block_size=self.kv_cache.block_size,
            num_kv_blocks=self.kv_cache.asked_blocks,
            max_num_seqs=self.scheduler.max_num_seqs,
            max_num_batched_tokens=self.scheduler.max_num_batched_tokens,
            enable_prefix_caching=self.kv_cache.enable_prefix_caching,
            attention_backend=self.compute.attention_backend,
            enforce_eager=self.compute.enforce_eager,
            device_memory_utilization=self.memory.utilization,
            seed=self.compute.seed,
            pooling=None if self.pooling is None else self.pooling.spec,
            explicit=self.explicit,
        )
