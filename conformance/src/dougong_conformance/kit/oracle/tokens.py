"""Between tokens and numbers: logits to tokens, penalties, cuts."""

from __future__ import annotations

import torch

from dougong_conformance.kit.metric import F64, Expected


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """The first of the largest, int64 ``[num_rows]``."""
    largest = logits.to(F64).amax(dim=-1, keepdim=True)
    ids = torch.arange(logits.shape[-1]).expand_as(logits)
    return torch.where(logits.to(F64) == largest, ids, logits.shape[-1]).amin(dim=-1)


def logprobs(logits: torch.Tensor) -> Expected:
    """Natural logarithms, float32."""
    wide = logits.to(F64)
    largest = wide.amax(dim=-1, keepdim=True)
    value = wide - largest - (wide - largest).exp().sum(dim=-1, keepdim=True).log()
    size = (wide - largest).abs() + 1 + (wide - largest - value).abs()
    size = torch.where(torch.isfinite(size), size, 0.0)
    return Expected(value, size, size, logits.shape[-1], torch.float32)


def penalties(
    logits: torch.Tensor,
    in_prompt: torch.Tensor,
    output_counts: torch.Tensor,
    repetition: torch.Tensor,
    frequency: torch.Tensor,
    presence: torch.Tensor,
) -> Expected:
    """Repetition over prompt and output, then frequency and presence over output."""
    wide, factor = logits.to(F64), repetition.to(F64).unsqueeze(1)
    generated = output_counts > 0
    repeated = torch.where(wide > 0, wide / factor, wide * factor)
    first = torch.where(in_prompt | generated, repeated, wide)
    by_count = output_counts.to(F64) * frequency.to(F64).unsqueeze(1)
    by_presence = generated.to(F64) * presence.to(F64).unsqueeze(1)
    size = first.abs() + by_count.abs() + by_presence.abs()
    is_touched = (first != wide) | (by_count != 0) | (by_presence != 0)
    size = torch.where(is_touched & torch.isfinite(size), size, 0.0)
    return Expected(first - by_count - by_presence, size, size, 1, torch.float32)


def kept(
    logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, *, margin: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which tokens both cuts keep, and which are too near the edge of ``p`` for anyone to say.

    Equal logits at an edge stay together. The token that crosses ``p`` stays.
    """
    wide = logits.to(F64)
    ordered, _ = wide.sort(dim=-1, descending=True)
    kth = ordered.gather(1, (top_k - 1).unsqueeze(1))
    inside = wide >= kth
    weight = torch.where(inside, (wide - ordered[:, :1]).exp(), 0.0)
    share = weight / weight.sum(dim=-1, keepdim=True)
    # What is strictly likelier comes before a token; equals come together.
    before = torch.where(wide.unsqueeze(1) > wide.unsqueeze(2), share.unsqueeze(1), 0.0).sum(dim=-1)
    limit = torch.where(top_p < 1, top_p.to(F64), torch.inf).unsqueeze(1)
    is_first = wide == ordered[:, :1]
    keeps = inside & ((before < limit) | is_first)
    is_near = inside & ~is_first & ((before - limit).abs() < margin)
    return keeps, is_near


def packed(is_allowed: torch.Tensor) -> torch.Tensor:
    """Bits of masks as a worker gets them: token ``t`` is bit ``t % 32`` of word ``t // 32``.

    Args:
        is_allowed: Bool ``[num_rows, vocab_size]``.

    Returns:
        int32 ``[num_rows, ceil(vocab_size / 32)]``; bits past the vocabulary are not set.
    """
    num_rows, vocab_size = is_allowed.shape
    num_words = -(-vocab_size // 32)
    bits = torch.zeros(num_rows, num_words * 32, dtype=torch.int64)
    bits[:, :vocab_size] = is_allowed
    words = (bits.view(num_rows, num_words, 32) << torch.arange(32)).sum(dim=-1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)
