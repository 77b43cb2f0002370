"""Attention of a step's queries over all keys and values of their sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from dougong_conformance.kit.metric import F64, Expected


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionTerms:
    """What one kind of layer asks.

    Attributes:
        scale: Factor of ``q @ k``.
        sliding_window: Tokens a query sees, itself included; ``None``: all.
        soft_cap: Scores become ``cap * tanh(score / cap)``; ``None``: no cap.
        is_causal: A query sees no later token.
    """

    scale: float
    sliding_window: int | None = None
    soft_cap: float | None = None
    is_causal: bool = True


def attention(
    queries: Sequence[torch.Tensor],
    keys: Sequence[torch.Tensor],
    values: Sequence[torch.Tensor],
    terms: AttentionTerms,
) -> Expected:
    """Rows of all sequences, one after the other; probabilities or scaled queries may be rounded.

    Args:
        queries: Per sequence, of its last tokens, ``[num_queries, num_heads, head_dim]``.
        keys: Per sequence, of all its tokens, ``[num_tokens, num_kv_heads, head_dim]``, as stored.
        values: Likewise.
        terms: Of the layer.
    """
    parts = [_one(q, k, v, terms) for q, k, v in zip(queries, keys, values, strict=True)]
    value, condition, rounded = (torch.cat([part[i] for part in parts]) for i in range(3))
    longest = max((k.shape[0] for k in keys), default=0)
    return Expected(value, condition, rounded, longest + value.shape[-1], queries[0].dtype)


def _one(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, terms: AttentionTerms
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    num_queries, num_keys = q.shape[0], k.shape[0]
    repeats = q.shape[1] // k.shape[1]
    query = q.to(F64)
    key, value = (one.to(F64).repeat_interleave(repeats, dim=1) for one in (k, v))
    scores = torch.einsum("qhd,khd->hqk", query, key) * terms.scale
    sizes = torch.einsum("qhd,khd->hqk", query.abs(), key.abs()) * terms.scale
    if terms.soft_cap is not None:
        scores = terms.soft_cap * torch.tanh(scores / terms.soft_cap)
    at_query = torch.arange(num_keys - num_queries, num_keys).unsqueeze(1)
    at_key = torch.arange(num_keys)
    is_hidden = (at_key > at_query) & terms.is_causal
    if terms.sliding_window is not None:
        is_hidden = is_hidden | (at_key <= at_query - terms.sliding_window)
    shares = scores.masked_fill(is_hidden, -torch.inf).softmax(dim=-1)
    largest = sizes.masked_fill(is_hidden, 0.0).amax(dim=-1)
    out = torch.einsum("hqk,khd->qhd", shares, value)
    size = torch.einsum("hqk,khd->qhd", shares, value.abs())
    return out, size * (1 + 2 * largest.T.unsqueeze(-1)), size


def encoder_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, starts: Sequence[int], scale: float
) -> Expected:
    """Each token over all tokens of its own sequence, before and after it.

    Args:
        q: ``[num_tokens, num_heads, head_dim]``.
        k: Likewise.
        v: Likewise.
        starts: Where each sequence begins, then ``num_tokens``.
        scale: Factor of ``q @ k``.
    """
    if not q.shape[0]:
        nothing = torch.zeros(q.shape, dtype=F64)
        return Expected(nothing, nothing, nothing, 1, q.dtype)
    terms = AttentionTerms(scale=scale, is_causal=False)
    queries, keys, values = (
        [one[start:end] for start, end in pairwise(starts)] for one in (q, k, v)
    )
    return attention(queries, keys, values, terms)
