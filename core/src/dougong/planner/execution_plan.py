"""The plan: what will run, who decided it, what was passed over and why. Immutable data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from dougong.config import Decision
from dougong.contracts import (
    AttentionAssignment,
    GraphAssignment,
    LoRAAssignment,
    OpAssignment,
    OpPiece,
    Property,
    RankPlan,
    StoredWeights,
)
from dougong.contracts.rank_plan import NATIVE

PLAN_VERSION = 1


class FallbackLevel(StrEnum):
    """How much fell back to something more general."""

    OP = "op"
    PATH = "path"
    PLATFORM = "platform"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """Something more general runs than what was there to be used.

    Attributes:
        level: An op to native, a path (attention, weights, graph) to the generic one, or the
            platform to ``cpu``.
        subject: What fell back, as the operator names it (``"op rms_norm"``).
        reason: Why.
        cost_hint: What it costs, in a few words; empty: unknown.
    """

    level: FallbackLevel
    subject: str
    reason: str
    cost_hint: str = ""

    def __str__(self) -> str:
        hint = f" ({self.cost_hint})" if self.cost_hint else ""
        return f"{self.level} fallback: {self.subject}: {self.reason}{hint}"


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A candidate that is not used.

    Attributes:
        name: Of the candidate.
        reason: Why not; where the checkpoint is the cause, with the property, the value needed and
            where that value came from.
    """

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionPlan:
    """Attention layers that are alike, and their backend.

    Attributes:
        assignment: What the rank is told.
        author: Who chose: `USER`, `CORE` or ``platform NAME``.
        workspace_bytes: Device memory beside the cache, for the largest step.
        passed_over: Backends that came first and cannot, or that were not reached.
    """

    assignment: AttentionAssignment
    author: str
    workspace_bytes: int = 0
    passed_over: tuple[PassedOver, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpPlan:
    """Ops of one key with the same properties, and what runs for them.

    Attributes:
        key: The op.
        properties: That all of them have.
        assignment: What the rank is told.
        author: Who chose.
        inside: Key of the fused slot that does their work; empty: they run.
        passed_over: Candidates that are not used, or not for every token count.
    """

    key: str
    properties: Mapping[str, Property]
    assignment: OpAssignment
    author: str
    inside: str = ""
    passed_over: tuple[PassedOver, ...] = ()

    @property
    def count(self) -> int:
        """How many ops."""
        return len(self.assignment.paths)

    @property
    def is_native(self) -> bool:
        """Whether plain torch runs at every token count."""
        return all(piece.implementation == NATIVE for piece in self.assignment.pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightPlan:
    """What becomes of the weights stored in one format.

    Attributes:
        format: As the checkpoint names it (``"q4_1"``, ``"bfloat16"``).
        stored_bytes: In the files; ``None``: no weight file is here.
        computed_as: Format in which ops get them: a dtype, or ``format`` itself.
        where: ``"as stored"``, ``"partly as stored"``, ``"dequantized at load"``, ``"converted at
            load"``.
        kept_share: Of the elements, those that stay as stored.
        kernel: Implementation that computes the stored form; empty: none does.
        scale_layout: How its scales lie, in words; empty: it has none or nobody said.
        reason: Why not as stored; empty where it is.
    """

    format: str
    stored_bytes: int | None
    computed_as: str
    where: str
    kernel: str = ""
    scale_layout: str = ""
    reason: str = ""
    kept_share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCachePlanned:
    """The KV cache as far as it is known before memory is measured.

    Attributes:
        dtype: Of the stored elements.
        block_size: Tokens per block.
        block_bytes: One block over all layers, alignment included.
        padding_bytes: Part of it that alignment wastes.
        reserved_blocks: Blocks a backend keeps for itself.
        num_blocks: Blocks that were asked for, else an upper bound from the memory budget less the
            weights; ``None``: unknown.
    """

    dtype: str
    block_size: int
    block_bytes: int
    padding_bytes: int
    reserved_blocks: int = 0
    num_blocks: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoRAPlan:
    """What becomes of adapters.

    Attributes:
        wrapper: Import string of what the platform computes them with; empty: it computes none.
        reason: Why they are taken, or not.
        num_bytes: Device memory of all slots.
        assignment: What a rank is told; ``None``: none are taken.
    """

    wrapper: str = ""
    reason: str = ""
    num_bytes: int = 0
    assignment: LoRAAssignment | None = None


@dataclass(frozen=True, slots=True)
class ExecutionMode:
    """How much of a step is captured.

    Attributes:
        name: ``"none"``, ``"piecewise"``, ``"decode"`` or ``"full"``.
        reason: Why this one.
        graphs: What a rank is told to capture.
    """

    name: str
    reason: str
    graphs: GraphAssignment = field(default_factory=GraphAssignment)


@dataclass(frozen=True, slots=True)
class ExecutionWay:
    """How the host runs the model.

    Attributes:
        name: ``"flat"``, straight-line code, or ``"eager"``, module by module.
        reason: Why this one.
    """

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionPlan:
    """One engine's plan.

    Attributes:
        model: As the user wrote it.
        architecture: Name of the model class.
        dtype: Compute dtype.
        platform: Name of the platform.
        platform_wheel: Its distribution and version; empty: not installed here.
        platform_reasons: Why this platform and these devices.
        arch: Family of the device; with ``is_generic`` one that the platform did not recognise.
        device: Name of the device.
        is_generic: The family's claims are those that hold for every device.
        attention: Per kind of layer.
        kv_cache: Of all layers.
        ops: Per key and properties, in the order of the model.
        weights: Per format.
        stored: Weights that stay as the checkpoint stores them; the ranks' part of ``weights``.
        execution: How the host runs the model.
        mode: What is captured of it.
        lora: Adapters.
        decisions: Every option: value, author, reason.
        fallbacks: Everything that fell back, in the order DESIGN's levels have.
        unmatched: Registrations that no op of this model could ever use.
        origins: Implementation → distribution and version that brought it.
        kernels_loaded: Kernel libraries in use, with versions; ``None``: not tried yet.
        kernels_missing: Library → why not.
        choices: What the user asked for, by option; enough to ask for the same again.
        checkpoint: What tells the checkpoint from others: where it is (``source``), its commit on a
            hub (``revision``), digests of its configuration (``config``) and, where weight files
            are here, of their headers (``tensors``).
        notes: What the operator should know and nothing fell back for.
        plan_version: Of this structure.
    """

    model: str
    architecture: str
    dtype: str
    platform: str
    platform_wheel: str
    arch: str
    device: str
    attention: tuple[AttentionPlan, ...]
    kv_cache: KVCachePlanned
    ops: tuple[OpPlan, ...]
    weights: tuple[WeightPlan, ...]
    execution: ExecutionWay
    mode: ExecutionMode
    decisions: tuple[Decision, ...]
    lora: LoRAPlan = field(default_factory=LoRAPlan)
    stored: tuple[StoredWeights, ...] = ()
    platform_reasons: tuple[str, ...] = ()
    is_generic: bool = False
    fallbacks: tuple[Fallback, ...] = ()
    unmatched: tuple[PassedOver, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    kernels_loaded: tuple[str, ...] | None = None
    kernels_missing: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    checkpoint: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    plan_version: int = PLAN_VERSION

    @property
    def rank_plan(self) -> RankPlan:
        """What a rank is told."""
        return RankPlan(
            block_size=self.kv_cache.block_size,
            attention=tuple(plan.assignment for plan in self.attention),
            ops=tuple(plan.assignment for plan in self.ops),
            graphs=self.mode.graphs,
            lora=self.lora.assignment,
            stored=self.stored,
            execution=self.execution.name,
        )

    def implementations(self) -> dict[str, dict[str, int]]:
        """Op key → implementation → how many ops run it; those inside a fused slot do not run."""
        counts: dict[str, dict[str, int]] = {}
        for plan in self.ops:
            if not plan.inside:
                by_name = counts.setdefault(plan.key, {})
                for piece in plan.assignment.pieces:
                    by_name[piece.implementation] = (
                        by_name.get(piece.implementation, 0) + plan.count
                    )
        return counts

    def attention_backends(self) -> dict[str, int]:
        """Backend → layers it serves, for prefill or decode."""
        counts: dict[str, int] = {}
        for plan in self.attention:
            one = plan.assignment
            for name in dict.fromkeys((one.backend, one.decode_backend or one.backend)):
                counts[name] = counts.get(name, 0) + len(one.layer_indices)
        return counts

    def with_decisions(self, decisions: Iterable[Decision]) -> ExecutionPlan:
        """The same plan with other decisions, as they are known later."""
        return replace(self, decisions=tuple(decisions))


__all__ = [
    "PLAN_VERSION",
    "AttentionPlan",
    "ExecutionMode",
    "ExecutionPlan",
    "ExecutionWay",
    "Fallback",
    "FallbackLevel",
    "KVCachePlanned",
    "LoRAPlan",
    "OpPiece",
    "OpPlan",
    "PassedOver",
    "WeightPlan",
]
