"""Models of the zoo that make one vector of a text, and the vectors that they must give."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from dougong_conformance.zoo.decoder import EXACT, Arithmetic, Decoder, legal_arithmetics
from dougong_conformance.zoo.models import (
    EOS_ID,
    MODELS,
    VOCAB_SIZE,
    drawn_whole,
    write_json,
    write_model,
    write_tokenizer,
)

_METHODS = {
    "mean": "pooling_mode_mean_tokens",
    "cls": "pooling_mode_cls_token",
    "last": "pooling_mode_lasttoken",
}
_EPS = 1e-5
_ENCODER: Mapping[str, Any] = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "hidden_act": "gelu",
    "max_position_embeddings": 128,
    "type_vocab_size": 2,
    "layer_norm_eps": _EPS,
    "pad_token_id": EOS_ID,
    "torch_dtype": "float32",
}


@dataclass(frozen=True, slots=True)
class Embedder:
    """One model.

    Attributes:
        name: For messages.
        method: ``"mean"``, ``"cls"`` or ``"last"``.
        is_normalized: The vector is divided by its length.
        decoder: Model of the zoo whose hidden states are used; empty: an encoder.
    """

    name: str
    method: str
    is_normalized: bool
    decoder: str = ""

    @property
    def hidden_size(self) -> int:
        """Elements of its vectors."""
        return int((MODELS[self.decoder].config if self.decoder else _ENCODER)["hidden_size"])


EMBEDDERS: Mapping[str, Embedder] = {
    one.name: one
    for one in (
        Embedder("mean", "mean", is_normalized=True),
        Embedder("first", "cls", is_normalized=False),
        Embedder("last", "last", is_normalized=True, decoder="grouped"),
        Embedder("last, as it is", "last", is_normalized=False, decoder="window"),
    )
}
"""By name."""


def write_embedder(model: Embedder, folder: Path) -> Path:
    """Write a whole checkpoint as sentence-transformers does, and return the folder."""
    if model.decoder:
        write_model(MODELS[model.decoder], folder)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "config.json", _ENCODER)
        weights = {name: weight.float() for name, weight in encoder_weights().items()}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        write_tokenizer(folder)
    kinds = ["Transformer", "Pooling", *(["Normalize"] if model.is_normalized else [])]
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": f"{index}_{kind}" if index else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (folder / "1_Pooling").mkdir(exist_ok=True)
    pooling = {key: name == model.method for name, key in _METHODS.items()}
    size = {"word_embedding_dimension": model.hidden_size}
    write_json(folder / "1_Pooling" / "config.json", {**size, **pooling})
    return folder


def vector_of(
    model: Embedder, token_ids: list[int], arithmetic: Arithmetic = EXACT
) -> torch.Tensor:
    """float64 ``[hidden_size]``: exact, or with the roundings of an arithmetic."""
    if model.decoder:
        hidden = Decoder(MODELS[model.decoder], arithmetic).hidden(token_ids)
    else:
        hidden = _Encoder(arithmetic).hidden(token_ids)
    wide = hidden.double()
    found = {"mean": wide.mean(dim=0), "cls": wide[0], "last": wide[-1]}[model.method]
    return found / found.norm() if model.is_normalized else found


def legal_vector_noise(model: Embedder, token_ids: list[int], dtype: torch.dtype) -> float:
    """Largest difference of an element that legal arithmetic makes."""
    exact = vector_of(model, token_ids)
    return max(
        float((vector_of(model, token_ids, one) - exact).abs().max())
        for one in legal_arithmetics(dtype)
    )


@cache
def encoder_weights() -> Mapping[str, torch.Tensor]:
    """Every tensor of the encoder by its name, float64; exact in every compute dtype."""
    found = {}
    for number, (name, shape) in enumerate(_encoder_shapes()):
        whole = drawn_whole(5000 + number, math.prod(shape)).reshape(shape)
        if name.endswith("LayerNorm.weight"):
            found[name] = 1.0 + torch.div(whole, 16, rounding_mode="trunc") / 64
        else:
            found[name] = whole / (128 if "embeddings" in name else 512)
    return found


def _encoder_shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner = int(_ENCODER["hidden_size"]), int(_ENCODER["intermediate_size"])
    for table, rows in (
        ("word", VOCAB_SIZE),
        ("position", int(_ENCODER["max_position_embeddings"])),
        ("token_type", int(_ENCODER["type_vocab_size"])),
    ):
        yield f"embeddings.{table}_embeddings.weight", (rows, hidden)
    yield from _pair("embeddings.LayerNorm", (hidden,))
    for layer in range(int(_ENCODER["num_hidden_layers"])):
        prefix = f"encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            yield from _pair(f"{prefix}.attention.self.{part}", (hidden, hidden))
        yield from _pair(f"{prefix}.attention.output.dense", (hidden, hidden))
        yield from _pair(f"{prefix}.attention.output.LayerNorm", (hidden,))
        yield from _pair(f"{prefix}.intermediate.dense", (inner, hidden))
        yield from _pair(f"{prefix}.output.dense", (hidden, inner))
        yield from _pair(f"{prefix}.output.LayerNorm", (hidden,))


def _pair(name: str, shape: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", shape
    yield f"{name}.bias", shape[:1]


class _Encoder:
    def __init__(self, arithmetic: Arithmetic) -> None:
        self._as = arithmetic
        self._weights = {
            name: weight.to(arithmetic.computes) for name, weight in encoder_weights().items()
        }

    def hidden(self, token_ids: list[int]) -> torch.Tensor:
        """``[len(token_ids), hidden_size]``."""
        tables = [
            self._weights[f"embeddings.{name}_embeddings.weight"]
            for name in ("word", "token_type", "position")
        ]
        words, kinds, positions = tables
        x = self._as.stored(words[torch.tensor(token_ids)] + kinds[0])
        x = self._norm(self._as.stored(x + positions[: len(token_ids)]), "embeddings.LayerNorm")
        for layer in range(int(_ENCODER["num_hidden_layers"])):
            prefix = f"encoder.layer.{layer}"
            found = self._linear(self._attended(x, prefix), f"{prefix}.attention.output.dense")
            x = self._norm(self._as.stored(x + found), f"{prefix}.attention.output.LayerNorm")
            inner = self._linear(x, f"{prefix}.intermediate.dense")
            inner = self._as.stored(torch.nn.functional.gelu(inner))
            found = self._linear(inner, f"{prefix}.output.dense")
            x = self._norm(self._as.stored(x + found), f"{prefix}.output.LayerNorm")
        return x

    def _attended(self, x: torch.Tensor, prefix: str) -> torch.Tensor:
        heads = int(_ENCODER["num_attention_heads"])
        q, k, v = (
            self._linear(x, f"{prefix}.attention.self.{name}").view(x.shape[0], heads, -1)
            for name in ("query", "key", "value")
        )
        scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[-1])
        shares = self._as.inside(scores.softmax(dim=-1))
        return self._as.stored(torch.einsum("hqk,khd->qhd", shares, v)).reshape(x.shape)

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        centred = x - x.mean(dim=-1, keepdim=True)
        scale = torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + _EPS)
        normed = self._as.inside(centred * scale) * self._weights[f"{name}.weight"]
        return self._as.stored(normed + self._weights[f"{name}.bias"])

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        y = x @ self._weights[f"{name}.weight"].t()
        return self._as.stored(self._as.inside(y) + self._weights[f"{name}.bias"])
