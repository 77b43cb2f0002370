"""Random tokens: the number of a request and a position, and the token that it draws."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dougong_conformance.kit.metric import F64

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def uniform(seeds: Sequence[int], positions: Sequence[int]) -> list[float]:
    """SplitMix64 of seed and position, the upper 24 bits, in [0, 1)."""
    found = []
    for seed, position in zip(seeds, positions, strict=True):
        state = _mix((seed + _GOLDEN) & _MASK)
        state = _mix((state + _GOLDEN * (position + 1)) & _MASK)
        found.append((state >> 40) * 2.0**-24)
    return found


def draw(
    logits: torch.Tensor,
    temperature: Sequence[float],
    keeps: torch.Tensor,
    numbers: Sequence[float],
    *,
    margin: float = 1e-5,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens by inverse transform in the order of ids, and rows too near an edge to say.

    Args:
        logits: float32 ``[num_rows, vocab_size]``.
        temperature: Above 0.
        keeps: Bool of the same shape: what the cuts leave.
        numbers: In [0, 1), one per row.
        margin: Of a cumulative share.
    """
    wide = logits.to(F64)
    largest = wide.amax(dim=-1, keepdim=True)
    scaled = (wide - largest) / torch.tensor(temperature, dtype=F64).unsqueeze(1)
    share = torch.where(keeps, scaled.exp(), 0.0)
    cumulative = (share / share.sum(dim=-1, keepdim=True)).cumsum(dim=-1)
    target = torch.tensor(numbers, dtype=F64).unsqueeze(1)
    tokens = (cumulative <= target).sum(dim=-1).clamp(max=logits.shape[-1] - 1)
    is_near = ((cumulative - target).abs() < margin).any(dim=-1)
    return tokens, is_near


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
