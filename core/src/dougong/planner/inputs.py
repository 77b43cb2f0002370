"""What planning is told: the model's needs, the device, the candidates, the user's choices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dougong.config import Decision, EngineConfig
from dougong.config.op_switches import OpSwitches
from dougong.contracts import (
    AttentionBackend,
    AttentionRequest,
    Capabilities,
    GraphSupport,
    KernelReport,
    QuantizationSupport,
)
from dougong.describe import ModelNeeds, OpCandidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """What a platform and its extensions offer.

    Attributes:
        attention: Backends by name, preferred first.
        preferred: `Platform.get_attn_backend_cls`.
        ops: In order of registration.
        op_keys: Every op known, plugins' own included.
        quantization: Formats the platform computes, plugins' own included.
        kept_formats: Formats that the core's loader hands to kernels as they are stored; a
            platform's kernel for any other one is passed over. The engine of this version passes
            none: its loader makes plain weights of everything.
        graph: What the platform's graph runner can capture; ``None``: there is none.
        lora_wrapper: Import string of what computes adapters; ``None``: nothing does.
        kernels: What `Platform.import_kernels` reported; ``None``: not tried yet.
        failed: Implementation of an op, or kernel for a weight format → how it failed when it was
            first used.
        failed_backends: Attention backend → the same. Names of backends and of implementations do
            not share a namespace.
        failed_capture: How the capture of graphs failed; empty: it was not tried, or went well.
        notes: What the operator should know of registrations that change nothing.
    """

    attention: Mapping[str, AttentionBackend]
    preferred: Callable[[AttentionRequest], str | None] = lambda request: None
    ops: tuple[OpCandidate, ...] = ()
    op_keys: frozenset[str] = frozenset()
    quantization: tuple[QuantizationSupport, ...] = ()
    kept_formats: frozenset[str] = frozenset()
    graph: GraphSupport | None = None
    lora_wrapper: str | None = None
    kernels: KernelReport | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    failed_backends: Mapping[str, str] = field(default_factory=dict)
    failed_capture: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInputs:
    """All of it. The same inputs give the same plan.

    Attributes:
        needs: Of the model.
        config: Every value settled but who computes what.
        decisions: How those values came about.
        capabilities: Of the device.
        candidates: Of the platform.
        switches: ``--custom-ops`` and ``--op``.
        environment: Variables that conditions name and that are set.
        platform: Name of the platform.
        platform_wheel: Its distribution and version; empty: not installed here.
        platform_reasons: Why this platform.
        platforms_not_here: Platform → why it is not used, where ``cpu`` was taken for want of it.
        readable_formats: Weight formats that the core's own readers turn into plain weights, as
            checkpoints name them; told where weights are refused.
        is_strict: Refuse any fallback.
        choices: The user's options, by name, for the plan's own record.
        checkpoint: What tells this checkpoint from others, for the same record.
        notes: What the operator should know of the model.
    """

    needs: ModelNeeds
    config: EngineConfig
    decisions: tuple[Decision, ...]
    capabilities: Capabilities
    candidates: Candidates
    switches: OpSwitches
    platform: str
    platform_wheel: str = ""
    platform_reasons: tuple[str, ...] = ()
    platforms_not_here: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    readable_formats: tuple[str, ...] = ()
    is_strict: bool = False
    choices: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    checkpoint: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
