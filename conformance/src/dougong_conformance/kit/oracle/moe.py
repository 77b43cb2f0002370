"""Mixture of experts."""

from __future__ import annotations

import torch

from dougong_conformance.kit.metric import F64, HALF_ULP, Expected
from dougong_conformance.kit.oracle.linear import gated_product


def route(logits: torch.Tensor, top_k: int, *, renormalize: bool) -> tuple[torch.Tensor, Expected]:
    """Experts of each token, highest logit first and of equal ones the lowest id, and shares."""
    wide = logits.to(F64)
    ordered, expert_ids = wide.sort(dim=-1, descending=True, stable=True)
    ids = expert_ids[:, :top_k]
    if renormalize:
        shares = ordered[:, :top_k].softmax(dim=-1)
    else:
        shares = wide.softmax(dim=-1).gather(1, ids)
    # An exponential's error grows with the size of what it is taken of.
    spread = (ordered[:, :1] - ordered[:, :top_k]).abs() + 1
    size = shares * spread
    return ids, Expected(shares, size, size, logits.shape[-1], torch.float32)


def experts(
    name: str,
    x: torch.Tensor,
    expert_ids: torch.Tensor,
    shares: torch.Tensor,
    gate_up_weight: torch.Tensor,
    down_weight: torch.Tensor,
) -> Expected:
    """Each token through its experts, summed by shares; products may be rounded."""
    num_tokens, hidden_size = x.shape
    value, condition, rounded = (torch.zeros(num_tokens, hidden_size, dtype=F64) for _ in range(3))
    unit = HALF_ULP[x.dtype]
    for token in range(num_tokens):
        for expert, share in zip(expert_ids[token].tolist(), shares[token].tolist(), strict=True):
            inner, inner_size, inner_rounded = gated_product(
                name, x[token : token + 1], gate_up_weight[expert]
            )
            down = down_weight[expert].to(F64)
            out = (inner @ down.T)[0]
            value[token] += share * out
            condition[token] += abs(share) * ((inner_size + inner.abs()) @ down.abs().T)[0]
            reached = ((inner_rounded + inner.abs()) @ down.abs().T)[0]
            rounded[token] += abs(share) * (reached + out.abs() * (1 + 2.0**-24 / unit))
    n = hidden_size + down_weight.shape[-1]
    return Expected(value, condition, rounded, n, x.dtype)
