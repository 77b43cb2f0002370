"""What the engine knows about a model before any weight is read; plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dougong.messages.pooling import PoolingMethod


@dataclass(frozen=True, slots=True)
class AttentionLayerKind:
    """Attention layers that are alike.

    Attributes:
        layer_indices: Attention layers, counted from 0.
        sliding_window: Tokens a query sees, itself included; ``None``: all.
    """

    layer_indices: tuple[int, ...]
    sliding_window: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedPooling:
    """What a checkpoint says of vectors made with it.

    Attributes:
        source: File that says it; empty: none does.
        method: How hidden states become one vector; ``None``: it does not say.
        is_normalized: Whether vectors have length 1; ``None``: it does not say.
        dimensions: Lengths that vectors may be cut to; empty: it names none.
        is_matryoshka: Vectors may be cut.
        max_len: Tokens of a text that the model was tuned for; ``None``: it does not say.
        prompts: Texts to put before a client's, by name.
        default_prompt: Name of the one for every text.
        problems: What it asks for and nobody here can compute.
    """

    source: str = ""
    method: PoolingMethod | None = None
    is_normalized: bool | None = None
    dimensions: tuple[int, ...] = ()
    is_matryoshka: bool = False
    max_len: int | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A model as its checkpoint describes it.

    Attributes:
        reference: As the user wrote it.
        path: Local folder or file of the checkpoint.
        architecture: Name of the model class.
        hf_config: The checkpoint's configuration in Hugging Face's vocabulary.
        vocab_size: Token ids run from 0 to ``vocab_size - 1``.
        hidden_size: Width of the residual stream.
        intermediate_size: Width of the MLP.
        num_layers: Decoder layers.
        num_heads: Query heads per layer.
        num_kv_heads: KV heads per layer.
        head_dim: Elements per head.
        attention_layers: Kinds of attention layers; together they name every layer once.
        max_position: Longest sequence the checkpoint is made for, rope scaling included.
        max_position_reason: How that number came about.
        dtype: Dtype the weights are best computed in.
        weight_formats: Storage format → bytes in the files.
        num_parameters: Elements of all tensors; a tied head counts once.
        stored_bytes: Bytes of all tensors in the files.
        is_tied: The head is the embedding.
        is_encoder: It reads whole texts in both directions and keeps no keys and values.
        pooling: What is said of vectors.
    """

    reference: str
    path: str
    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    attention_layers: tuple[AttentionLayerKind, ...]
    max_position: int
    dtype: str
    num_parameters: int
    stored_bytes: int
    max_position_reason: str = "max_position_embeddings of the checkpoint"
    weight_formats: Mapping[str, int] = field(default_factory=dict)
    is_tied: bool = False
    is_encoder: bool = False
    pooling: StatedPooling = field(default_factory=StatedPooling)
    hf_config: Mapping[str, Any] = field(default_factory=dict)

    def weight_bytes(self, element_bytes: int) -> int:
        """Bytes of the parameters once they are loaded in a dtype of ``element_bytes``."""
        return self.num_parameters * element_bytes

    def kv_bytes_per_token(self, element_bytes: int) -> int:
        """Bytes that K and V of one token take over all layers, before block alignment."""
        if self.is_encoder:
            return 0
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * element_bytes
