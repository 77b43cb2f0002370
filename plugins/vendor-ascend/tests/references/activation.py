"""Gated activations."""

from __future__ import annotations

import torch
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from tests.references.refusals import HALVES, require, require_dtype

_FLOATS = (*HALVES, torch.float32)


def npu_swiglu(input: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """``silu(first half) * second half`` along ``dim``."""
    first, second = _halves("npu_swiglu", input, dim)
    return F.silu(first) * second


def npu_geglu(
    input: torch.Tensor, dim: int = -1, approximate: int = 1, activate_left: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """``(result, gelu part)``; unless ``activate_left`` it is the second half that is activated."""
    first, second = _halves("npu_geglu", input, dim)
    gate, other = (first, second) if activate_left else (second, first)
    active = F.gelu(gate, approximate="tanh" if approximate else "none")
    return active * other, active


def _halves(op: str, x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    require_dtype(op, _FLOATS, input=x)
    require(x.shape[dim] % 2 == 0, op, f"axis {dim} has odd length {x.shape[dim]}")
    first, second = x.chunk(2, dim)
    return first, second
