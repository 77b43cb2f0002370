"""What planning is told of platforms and models that exist on paper only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

from dougong.config import (
    ComputeConfig,
    Decision,
    EngineConfig,
    GraphConfig,
    KVCachePlan,
    MemoryConfig,
    SchedulerConfig,
)
from dougong.config.op_switches import OpSwitches
from dougong.contracts import (
    AttentionBackend,
    AttentionImpl,
    AttentionLimits,
    AttentionMetadataBuilder,
    AttentionRequest,
    GraphSupport,
    KVBuffer,
    KVCacheSpec,
    KVLayout,
)
from dougong.describe import AttentionNeed, ModelNeeds, OpSite, WeightNeed
from dougong.planner import Candidates, PlanInputs
from tests.support.made_up_cards import GIB, made_up_card, made_up_model

PLAIN = AttentionLimits(dtypes=frozenset({"bfloat16", "float32"}), sliding_window=True)


class PaperBackend(AttentionBackend):
    """Answers as it is told; computes nothing.

    Args:
        name: Of the backend.
        limits: What it takes.
        layout: Name of its layout.
        block_sizes: That its layout takes; empty: any.
        is_flat: K and V of a block are one axis, so that layouts differ in their buffers.
        library: Kernel library.
        graph: What may be captured.
        workspace: Bytes beside the cache.
        **layout_options: More of `KVLayout`.
    """

    def __init__(
        self,
        name: str,
        limits: AttentionLimits = PLAIN,
        *,
        layout: str = "plain",
        block_sizes: tuple[int, ...] = (),
        is_flat: bool = False,
        library: str | None = None,
        graph: GraphSupport | None = None,
        workspace: int = 0,
        **layout_options: Any,
    ) -> None:
        self.name = name
        self.limits = limits
        self.library = library
        self._layout = layout
        self._block_sizes = block_sizes
        self._is_flat = is_flat
        self._graph = graph or GraphSupport()
        self._workspace = workspace
        self._layout_options = layout_options

    def kv_layout(self, spec: KVCacheSpec) -> KVLayout:
        shapes = {
            "k": (spec.block_size, spec.num_kv_heads, spec.head_dim),
            "v": (spec.block_size, spec.num_kv_heads, spec.head_dim_v or spec.head_dim),
        }
        if self._is_flat:
            shapes = {name: (math.prod(shape),) for name, shape in shapes.items()}  # type: ignore[misc]  # another length
        options: dict[str, Any] = {
            "buffers": tuple(
                KVBuffer(name=name, block_shape=shape, dtype=spec.dtype)
                for name, shape in shapes.items()
            ),
            "block_sizes": self._block_sizes or (spec.block_size,),
        }
        return KVLayout(name=self._layout, **(options | self._layout_options))

    def graph_support(self) -> GraphSupport:
        return self._graph

    def workspace_bytes(self, request: AttentionRequest, max_num_tokens: int) -> int:
        return self._workspace

    def make_impl(self, request: AttentionRequest, scale: float) -> AttentionImpl:
        never()

    def make_builder(self, *arguments: Any) -> AttentionMetadataBuilder:
        never()


def never() -> NoReturn:
    raise AssertionError("planning makes nothing")


def named(*backends: AttentionBackend) -> dict[str, AttentionBackend]:
    return {backend.name: backend for backend in backends}


def need(*layers: int, **changes: Any) -> AttentionNeed:
    values: dict[str, Any] = {"num_heads": 8, "num_kv_heads": 2, "head_dim": 64}
    return AttentionNeed(layer_indices=layers or (0, 1), **(values | changes))


def site(key: str, path: str, **properties: int | str | bool) -> OpSite:
    return OpSite(key=key, path=path, properties=properties)


def model_needs(**changes: Any) -> ModelNeeds:
    values: dict[str, Any] = {
        "architecture": "PaperForCausalLM",
        "num_parameters": 1_000_000,
        "vocab_size": 1000,
        "hidden_size": 512,
        "attention": (need(),),
        "weights": (WeightNeed(format="bfloat16", is_quantized=False, is_readable=True),),
        "ops": (site("norm", "model.norm", hidden_size=512),),
    }
    return ModelNeeds(**(values | changes))


def engine_config(
    *,
    dtype: str = "bfloat16",
    attention_backend: str | None = None,
    enforce_eager: bool = False,
    execution: str | None = None,
    kv_dtype: str | None = None,
    block_size: int = 16,
    asked_blocks: int | None = None,
    asked_bytes: int | None = None,
    asked_by: str = "",
    max_num_batched_tokens: int = 64,
    memory_bytes: int = 24 * GIB,
    graphs: GraphConfig | None = None,
    explicit: frozenset[str] = frozenset(),
) -> EngineConfig:
    return EngineConfig(
        model=made_up_model(reference="paper/model", num_parameters=1_000_000),
        compute=ComputeConfig(
            dtype=dtype,
            attention_backend=attention_backend,
            enforce_eager=enforce_eager,
            seed=0,
            execution=execution,
        ),
        memory=MemoryConfig(
            machine_bytes=memory_bytes, quota_bytes=None, quota_source="", utilization=1.0
        ),
        kv_cache=KVCachePlan(
            dtype=kv_dtype or dtype,
            block_size=block_size,
            enable_prefix_caching=True,
            asked_blocks=asked_blocks,
            asked_bytes=asked_bytes,
            asked_by=asked_by,
        ),
        scheduler=SchedulerConfig(
            max_num_seqs=8, max_num_batched_tokens=max_num_batched_tokens, max_model_len=128
        ),
        graphs=graphs or GraphConfig(),
        explicit=explicit,
    )


DECISIONS = (
    Decision("dtype", "bfloat16", "checkpoint", "dtype of the checkpoint", is_default=True),
    Decision("block_size", 16, "platform paper", "preferred by this device"),
    Decision("memory_limit", 24 * GIB, "core", "machine memory"),
)


def paper_inputs(
    *,
    needs: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    candidates: Mapping[str, Any] | None = None,
    claims: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    switches: OpSwitches | None = None,
    **changes: Any,
) -> PlanInputs:
    """Inputs that give a plan without any fallback; ``needs`` and so on change single values.

    Options changed in ``config`` count as the user's.
    """
    config = dict(config or {})
    names = {"kv_dtype": "kv_cache_dtype", "asked_blocks": "num_kv_blocks",
             "asked_bytes": "kv_cache_memory_bytes"}  # fmt: skip
    explicit = frozenset(names.get(name, name) for name in config) - {
        "asked_by",
        "memory_bytes",
        "graphs",
    }
    config.setdefault("explicit", explicit)
    values: dict[str, Any] = {
        "needs": model_needs(**(needs or {})),
        "config": engine_config(**config),
        "decisions": DECISIONS,
        "capabilities": made_up_card(claims=dict(claims or {}), facts=dict(facts or {})),
        "candidates": replace(
            Candidates(
                attention=named(PaperBackend("paper/fast"), PaperBackend("reference/torch")),
                op_keys=frozenset({"norm", "act", "slot"}),
            ),
            **(candidates or {}),
        ),
        "switches": switches or OpSwitches(),
        "platform": "paper",
    }
    return PlanInputs(**(values | changes))
