"""BERT (Devlin et al. 2018, arXiv:1810.04805), MiniLM among its kin, and RoBERTa (Liu et al. 2019,
arXiv:1907.11692), which counts positions from another number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from dougong.errors import ConfigError
from dougong.models.encoder_model import EncoderModel, EncoderStep
from dougong.models.loadable import WeightTarget
from dougong.ops import EncoderAttention, LayerNorm, Linear
from dougong.ops.encoder_layers import AddLayerNorm, EncoderEmbedding
from dougong.ops.gelu import Gelu

_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
    "type_vocab_size",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BertSettings:
    """Geometry and options of every layer; field names are the config's."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    type_vocab_size: int
    hidden_act: str
    layer_norm_eps: float

    @classmethod
    def read(cls, hf_config: Mapping[str, Any]) -> BertSettings:
        """Of a config; absent options have `transformers`' defaults.

        Raises:
            ConfigError: A size is missing, or it is no plain encoder; all problems in one message.
        """
        config = {"type_vocab_size": 2, **hf_config}
        problems = [
            f"{name}={config.get(name)!r} must be an integer of 1 or more."
            for name in _SIZES
            if not isinstance(config.get(name), int) or config[name] < 1
        ]
        kind = config.get("position_embedding_type") or "absolute"
        if kind != "absolute":
            problems.append(f"position_embedding_type={kind!r} is not known; known: absolute.")
        if config.get("is_decoder"):
            problems.append("is_decoder is set, and this class computes encoders alone.")
        if not problems and config["hidden_size"] % config["num_attention_heads"]:
            problems.append(
                f"hidden_size={config['hidden_size']} is no multiple of "
                f"num_attention_heads={config['num_attention_heads']}."
            )
        if problems:
            raise ConfigError("The checkpoint's config cannot be used:", tuple(problems))
        return cls(
            **{name: int(config[name]) for name in _SIZES},
            hidden_act=str(config.get("hidden_act", "gelu")),
            layer_norm_eps=float(config.get("layer_norm_eps", 1e-12)),
        )


class BertModel(EncoderModel):
    """Encoder of learned positions, with a norm after each half-layer. Texts are of one segment:
    every token has the first token type.

    Attributes:
        first_position: Row of the position table that a text's first token has.
    """

    base_prefix: ClassVar[str] = "bert."
    # The pooler was trained to tell whether sentences follow one another, the heads to fill gaps.
    unused_tensors: ClassVar[tuple[str, ...]] = (
        "pooler.",
        "cls.",
        "classifier.",
        "embeddings.position_ids",
    )

    def __init__(
        self,
        hf_config: Mapping[str, Any],
        dtype: torch.dtype,
        max_model_len: int | None = None,
    ) -> None:
        super().__init__(hf_config, dtype, max_model_len)
        settings = BertSettings.read(hf_config)
        hidden, eps = settings.hidden_size, settings.layer_norm_eps
        self.first_position = self.read_first_position(hf_config)
        self.embeddings = EncoderEmbedding(
            settings.vocab_size,
            settings.max_position_embeddings,
            settings.type_vocab_size,
            hidden,
            dtype,
            self.first_position,
        )
        self.norm = LayerNorm(hidden, eps, dtype)
        self.layers = nn.ModuleList(
            BertLayer(settings, dtype) for _ in range(settings.num_hidden_layers)
        )

    @staticmethod
    def read_first_position(hf_config: Mapping[str, Any]) -> int:
        """See `first_position`."""
        return 0

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, step: EncoderStep
    ) -> torch.Tensor:
        x = self.norm(self.embeddings(token_ids, positions))
        for layer in self.layers:
            x = layer(x, step)
        hidden: torch.Tensor = x
        return hidden

    def weight_targets(self) -> Mapping[str, WeightTarget]:
        tables = {
            "word_embeddings": self.embeddings.words,
            "position_embeddings": self.embeddings.position_table,
            "token_type_embeddings": self.embeddings.types,
        }
        targets = {f"embeddings.{name}.weight": WeightTarget(one) for name, one in tables.items()}
        targets.update(_targets("embeddings.LayerNorm", self.norm))
        layers: Iterable[Any] = self.layers
        for index, layer in enumerate(layers):
            targets.update(layer.targets(f"encoder.layer.{index}"))
        return targets


class RobertaModel(BertModel):
    """BERT whose positions begin after that of padding; XLM-RoBERTa is the same."""

    base_prefix: ClassVar[str] = "roberta."
    unused_tensors: ClassVar[tuple[str, ...]] = (*BertModel.unused_tensors, "lm_head.")

    @staticmethod
    def read_first_position(hf_config: Mapping[str, Any]) -> int:
        padding = hf_config.get("pad_token_id")
        return 1 + (1 if padding is None else int(padding))


class BertLayer(nn.Module):
    """Attention, then MLP, each added to its input and then normed."""

    def __init__(self, settings: BertSettings, dtype: torch.dtype) -> None:
        super().__init__()
        hidden, inner = settings.hidden_size, settings.intermediate_size
        eps, heads = settings.layer_norm_eps, settings.num_attention_heads
        self.num_heads = heads
        self.qkv = Linear(hidden, 3 * hidden, True, dtype)
        self.attention = EncoderAttention(heads, hidden // heads, (hidden // heads) ** -0.5)
        self.attention_out = Linear(hidden, hidden, True, dtype)
        self.attention_norm = AddLayerNorm(hidden, eps, dtype)
        self.up = Linear(hidden, inner, True, dtype)
        self.act = Gelu(settings.hidden_act)
        self.down = Linear(inner, hidden, True, dtype)
        self.norm = AddLayerNorm(hidden, eps, dtype)

    def __call__(self, x: torch.Tensor, step: EncoderStep) -> torch.Tensor:
        q, k, v = self.qkv(x).view(x.shape[0], 3, self.num_heads, -1).unbind(1)
        found = self.attention(q, k, v, step.query_starts, step.query_starts_cpu, step.longest)
        x = self.attention_norm(self.attention_out(found.flatten(1)), x)
        y: torch.Tensor = self.norm(self.down(self.act(self.up(x))), x)
        return y

    def targets(self, prefix: str) -> Iterator[tuple[str, WeightTarget]]:
        """q, k and v side by side in one matrix."""
        size = self.qkv.in_features
        for index, name in enumerate(("query", "key", "value")):
            rows = slice(index * size, (index + 1) * size)
            yield from _targets(f"{prefix}.attention.self.{name}", self.qkv, rows)
        yield from _targets(f"{prefix}.attention.output.dense", self.attention_out)
        yield from _targets(f"{prefix}.attention.output.LayerNorm", self.attention_norm.norm)
        yield from _targets(f"{prefix}.intermediate.dense", self.up)
        yield from _targets(f"{prefix}.output.dense", self.down)
        yield from _targets(f"{prefix}.output.LayerNorm", self.norm.norm)


def _targets(
    name: str, op: Linear | LayerNorm, rows: slice | None = None
) -> Iterator[tuple[str, WeightTarget]]:
    """Weight and bias; older checkpoints call those of a norm gamma and beta."""
    assert op.bias is not None, "every part of this family has one"
    yield f"{name}.weight", WeightTarget(op.weight, rows)
    yield f"{name}.bias", WeightTarget(op.bias, rows)
