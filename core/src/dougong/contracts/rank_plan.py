"""What a rank obeys: who computes each attention layer and each op. Decided before it loads."""

from __future__ import annotations

from dataclasses import dataclass, field

from dougong.contracts.attention import AttentionRequest
from dougong.contracts.kv_cache import KVLayout

NATIVE = "native"
"""Name of an op's plain-torch implementation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionAssignment:
    """The backend of attention layers that are alike; they form one KV cache group.

    Attributes:
        layer_indices: Attention layers, counted from 0, ascending.
        request: What one such layer asks; its ``block_size`` is set.
        backend: Name of the backend; with ``decode_backend`` of the one that serves prefill.
        decode_backend: Serves sequences with one query token; ``None``: ``backend`` does. It shares
            the layout.
        layout: Answer of the backend's ``kv_layout`` while planning; a rank asks again, and another
            answer is the plugin's fault.
    """

    layer_indices: tuple[int, ...]
    request: AttentionRequest
    backend: str
    layout: KVLayout
    decode_backend: str | None = None


@dataclass(frozen=True, slots=True)
class OpPiece:
    """One implementation, for steps up to a number of tokens.

    Attributes:
        implementation: Name of a kernel or an out-of-tree class, or `NATIVE`.
        up_to: Most tokens, included; ``None``: no bound.
    """

    implementation: str
    up_to: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpAssignment:
    """What runs at some places of the model.

    Attributes:
        key: The op.
        paths: Of the op modules, as ``named_modules`` spells them; those of the sampler begin with
            ``sampler.``.
        pieces: By token count, ascending; the last has no bound.
    """

    key: str
    paths: tuple[str, ...]
    pieces: tuple[OpPiece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWeights:
    """Weights that stay as the checkpoint stores them.

    Attributes:
        format: As the property ``weight_format`` has it.
        paths: Of ops whose weight it is; one op of those that share a weight.
    """

    format: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphAssignment:
    """What a rank captures before the first request; all empty: nothing, and every step is eager.

    Attributes:
        decode: Sizes, in sequences, of whole steps in which each sequence has one query token;
            ascending, as the others are.
        piecewise: Sizes, in tokens, of other steps that are captured in pieces, attention between
            them.
        full: Sizes, in tokens, of other steps that are captured whole; then ``piecewise`` is empty.
        max_bytes: Device memory that all graphs together may take.
        may_drop: Sizes that do not fit may be left out, the largest first; otherwise somebody
            asked for them, and one that does not fit is an error.
    """

    decode: tuple[int, ...] = ()
    piecewise: tuple[int, ...] = ()
    full: tuple[int, ...] = ()
    max_bytes: int = 0
    may_drop: bool = True

    def __bool__(self) -> bool:
        """Whether anything is captured."""
        return bool(self.decode or self.piecewise or self.full)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoRAAssignment:
    """How a rank holds adapters.

    Attributes:
        wrapper: Import string of the `LoRAWrapper`.
        max_loras: Adapters held at once; each has a slot, from 0 on.
        max_rank: Largest rank of an adapter.
    """

    wrapper: str
    max_loras: int
    max_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """All a rank is told of who computes what.

    Attributes:
        block_size: Tokens per KV block, of every group.
        attention: Every attention layer once.
        ops: Every op of model and sampler once, those inside a fused slot that another
            implementation owns included.
        graphs: What is captured.
        lora: How adapters are held; ``None``: none are taken.
        stored: What the loader does not turn into the compute dtype.
        execution: ``"flat"``: straight-line code of the model's list runs; ``"eager"``: the model's
            modules do.
    """

    block_size: int
    attention: tuple[AttentionAssignment, ...]
    ops: tuple[OpAssignment, ...]
    graphs: GraphAssignment = field(default_factory=GraphAssignment)
    lora: LoRAAssignment | None = None
    stored: tuple[StoredWeights, ...] = ()
    execution: str = "eager"
