"""A decoder of the judge's own: exact in float64, or with the roundings that are allowed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from dougong_conformance.zoo.models import ZooModel, weights_of


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How a legal implementation may round.

    Attributes:
        computes: Dtype of every product and sum.
        stores: What each result is rounded to on its way.
        rounds_inside: Intermediates within an op are rounded as well: the normalised value before
            its weight, cosines and sines, probabilities.
    """

    computes: torch.dtype
    stores: torch.dtype
    rounds_inside: bool

    def stored(self, x: torch.Tensor) -> torch.Tensor:
        """A result on its way through memory."""
        return x.to(self.stores).to(self.computes)

    def inside(self, x: torch.Tensor) -> torch.Tensor:
        """An intermediate result of one op."""
        return self.stored(x) if self.rounds_inside else x


NOTHING_ADDED: Mapping[str, torch.Tensor] = {}
EXACT = Arithmetic(torch.float64, torch.float64, rounds_inside=False)


def legal_arithmetics(dtype: torch.dtype) -> tuple[Arithmetic, ...]:
    """Ways to compute in a dtype, none of which may be called wrong."""
    return tuple(
        Arithmetic(computes, dtype, rounds_inside)
        for computes in (torch.float64, torch.float32)
        for rounds_inside in (False, True)
    )


class Decoder:
    """One model of the zoo.

    Args:
        model: Which.
        arithmetic: How it computes.
        added: Float64, added to weights of these names: adapters that are merged.
    """

    def __init__(
        self,
        model: ZooModel,
        arithmetic: Arithmetic = EXACT,
        added: Mapping[str, torch.Tensor] = NOTHING_ADDED,
    ) -> None:
        self.config: Mapping[str, Any] = model.config
        self._as = arithmetic
        self._weights = {
            name: (weight.double() + added.get(name, 0.0)).to(arithmetic.computes)
            for name, weight in weights_of(model).items()
        }

    def logits(self, token_ids: list[int]) -> torch.Tensor:
        """``[len(token_ids), vocab_size]``, one row per position."""
        tied = bool(self.config["tie_word_embeddings"])
        head = "model.embed_tokens.weight" if tied else "lm_head.weight"
        return self._as.stored(self.hidden(token_ids) @ self._weights[head].t())

    def hidden(self, token_ids: list[int]) -> torch.Tensor:
        """``[len(token_ids), hidden_size]``, after the last norm."""
        x = self._weights["model.embed_tokens.weight"][torch.tensor(token_ids)]
        for layer in range(int(self.config["num_hidden_layers"])):
            prefix = f"model.layers.{layer}"
            normed = self._norm(x, f"{prefix}.input_layernorm.weight")
            x = self._as.stored(x + self._attention(normed, f"{prefix}.self_attn"))
            normed = self._norm(x, f"{prefix}.post_attention_layernorm.weight")
            x = self._as.stored(x + self._mlp(normed, f"{prefix}.mlp"))
        return self._norm(x, "model.norm.weight")

    def log_probabilities(self, token_ids: list[int]) -> torch.Tensor:
        """float64 ``[len(token_ids), vocab_size]``."""
        return self.logits(token_ids).double().log_softmax(dim=-1)

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        scale = torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + self.config["rms_norm_eps"])
        return self._as.stored(self._as.inside(x * scale) * self._weights[name])

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        y = x @ self._weights[f"{name}.weight"].t()
        bias = self._weights.get(f"{name}.bias")
        return self._as.stored(y if bias is None else self._as.inside(y) + bias)

    def _mlp(self, x: torch.Tensor, prefix: str) -> torch.Tensor:
        gate, up = (self._linear(x, f"{prefix}.{part}_proj") for part in ("gate", "up"))
        activated = self._as.inside(gate * torch.sigmoid(gate))
        return self._linear(self._as.stored(activated * up), f"{prefix}.down_proj")

    def _attention(self, x: torch.Tensor, prefix: str) -> torch.Tensor:
        count, size = x.shape[0], int(self.config["head_dim"])
        q, k, v = (
            self._linear(x, f"{prefix}.{letter}_proj").view(count, -1, size) for letter in "qkv"
        )
        q, k = self._rotated(q), self._rotated(k)
        share = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(share, dim=1), v.repeat_interleave(share, dim=1)
        scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(size)
        p = scores.masked_fill(~self._seen(count), -math.inf).softmax(dim=-1)
        out = torch.einsum("hqk,khd->qhd", self._as.inside(p), v)
        return self._linear(self._as.stored(out).reshape(count, -1), f"{prefix}.o_proj")

    def _seen(self, count: int) -> torch.Tensor:
        """``[queries, keys]``: which keys a query sees."""
        rows, columns = torch.arange(count)[:, None], torch.arange(count)[None, :]
        window = self.config.get("sliding_window")
        seen = columns <= rows
        return seen if window is None else seen & (rows - columns < int(window))

    def _rotated(self, x: torch.Tensor) -> torch.Tensor:
        count, _, size = x.shape
        theta = float(self.config["rope_parameters"]["rope_theta"])
        powers = torch.arange(0, size, 2, dtype=torch.float64) / size
        angles = torch.arange(count, dtype=torch.float64)[:, None] * theta**-powers
        cos, sin = (
            self._as.inside(turn.to(self._as.computes))[:, None, :]
            for turn in (angles.cos(), angles.sin())
        )
        first, second = x[..., : size // 2], x[..., size // 2 :]
        parts = (first * cos - second * sin, second * cos + first * sin)
        return self._as.stored(torch.cat(parts, dim=-1))


def greedy(
    decoder: Decoder, prompt: list[int], count: int, least_margin: float = 0.0
) -> tuple[list[int], float]:
    """Tokens that follow, and the least margin between the first two choices.

    Ends early where the margin falls below ``least_margin``.
    """
    tokens, least = list(prompt), math.inf
    for _ in range(count):
        best = decoder.logits(tokens)[-1].topk(2)
        least = min(least, float(best.values[0] - best.values[1]))
        tokens.append(int(best.indices[0]))
        if least < least_margin:
            break
    return tokens[len(prompt) :], least


def legal_noise(
    model: ZooModel,
    token_ids: list[int],
    dtype: torch.dtype,
    added: Mapping[str, torch.Tensor] = NOTHING_ADDED,
) -> float:
    """Largest difference of a log-probability that legal arithmetic makes at any position."""
    exact = Decoder(model, added=added).log_probabilities(token_ids)
    return max(
        float((Decoder(model, one, added).log_probabilities(token_ids) - exact).abs().max())
        for one in legal_arithmetics(dtype)
    )
