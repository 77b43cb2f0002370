"""Gated activations: the gate rounded to the storage dtype, then the product."""

from __future__ import annotations

import torch
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from tests.references.limits import check, check_float


def silu_and_mul(result: torch.Tensor, input: torch.Tensor) -> None:
    """``silu`` of the first half."""
    gate, up = _halves(result, input)
    result.copy_(F.silu(gate) * up)


def gelu_and_mul(out: torch.Tensor, input: torch.Tensor) -> None:
    """The error function."""
    gate, up = _halves(out, input)
    out.copy_(F.gelu(gate) * up)


def gelu_tanh_and_mul(out: torch.Tensor, input: torch.Tensor) -> None:
    """The hyperbolic tangent."""
    gate, up = _halves(out, input)
    out.copy_(F.gelu(gate, approximate="tanh") * up)


def _halves(out: torch.Tensor, input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    check_float(input, "act_and_mul_kernel")
    check(out.is_contiguous() and input.is_contiguous(), "rows are read as contiguous")
    check(input.shape[-1] == 2 * out.shape[-1], "input last dim must be 2 * hidden_size")
    gate, up = input.chunk(2, dim=-1)
    return gate, up
