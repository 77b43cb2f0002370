"""What a model asks of whoever computes it; from its configuration alone, before any weight is
read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dougong.contracts import Property


@dataclass(frozen=True, slots=True, kw_only=True)
class OpSite:
    """One op of the built model.

    Attributes:
        key: The op.
        path: Of the module, as ``named_modules`` spells it; ``sampler.`` before the sampler's.
        properties: Sizes and options (`CustomOp.properties`).
        weight: Name of the parameter that holds its ``weight``; ops that share one have the same.
        stored_as: Format of all tensors that become that parameter, where it is one of blocks.
    """

    key: str
    path: str
    properties: Mapping[str, Property] = field(default_factory=dict)
    weight: str = ""
    stored_as: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionNeed:
    """Attention layers that are alike.

    Attributes:
        layer_indices: Attention layers, counted from 0.
        num_heads: Query heads.
        num_kv_heads: KV heads.
        head_dim: Elements per head of q and k.
        head_dim_v: Of v; ``None``: as ``head_dim``.
        sliding_window: Tokens a query sees, itself included; ``None``: all.
        soft_cap: Cap on scores; ``None``: none.
        has_sinks: A learned logit per head joins the softmax.
        kv_lora_rank: Of latent attention; ``None``: it is plain attention.
        rope_head_dim: Rotated part of a latent head; ``None``: it is plain attention.
    """

    layer_indices: tuple[int, ...]
    num_heads: int
    num_kv_heads: int
    head_dim: int
    head_dim_v: int | None = None
    sliding_window: int | None = None
    soft_cap: float | None = None
    has_sinks: bool = False
    kv_lora_rank: int | None = None
    rope_head_dim: int | None = None

    @property
    def is_mla(self) -> bool:
        """Whether it is multi-head latent attention."""
        return self.kv_lora_rank is not None


@dataclass(frozen=True, slots=True)
class ExpertsNeed:
    """A mixture of experts.

    Attributes:
        num_experts: Routed experts per layer.
        top_k: Experts a token goes to.
        intermediate_size: Width of one expert.
        num_shared_experts: Experts every token goes to.
        layer_indices: Decoder layers that have experts.
    """

    num_experts: int
    top_k: int
    intermediate_size: int
    num_shared_experts: int = 0
    layer_indices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightNeed:
    """Weights stored in one format.

    Attributes:
        format: As the checkpoint names it: a dtype, a GGUF type, or ``quant_method``.
        is_quantized: It is no plain dtype.
        is_readable: The core's own readers can turn it into a dense tensor.
        num_bytes: In the files; ``None``: no weight file is here.
        scale_layout: How its scales lie, where the configuration says so.
        options: The configuration's own words on it, for messages (``{"bits": "4"}``).
    """

    format: str
    is_quantized: bool
    is_readable: bool
    num_bytes: int | None = None
    scale_layout: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelNeeds:
    """All of it.

    Attributes:
        architecture: Name of the model class.
        num_parameters: Elements of all tensors; a tied head counts once.
        vocab_size: Token ids run from 0 to ``vocab_size - 1``.
        hidden_size: Width of the residual stream.
        attention: Kinds of attention layers; together they name every layer once.
        ops: Of the built model and the sampler; empty until an outline was made.
        num_calls: Of ops and attention layers in a forward, where the model is a flat list of them.
        not_flat: Why it is none; empty: it is one.
        weights: Formats.
        experts: ``None``: there are none.
        adapter_elements: Elements of one adapter of rank 1 at every projection that takes one; 0
            until an outline was made.
        provenance: Property of the checkpoint (``"dtype"``, ``"weight_format"``, a size) → where
            its value came from, where that helps to understand a refusal; a conversion is named.
    """

    architecture: str
    num_parameters: int
    vocab_size: int
    hidden_size: int
    attention: tuple[AttentionNeed, ...]
    weights: tuple[WeightNeed, ...]
    ops: tuple[OpSite, ...] = ()
    num_calls: int = 0
    not_flat: str = ""
    experts: ExpertsNeed | None = None
    adapter_elements: int = 0
    provenance: Mapping[str, str] = field(default_factory=dict)
