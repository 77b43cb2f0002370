"""Numbers for the examples of ops: the same in every process, whatever was drawn before."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

_M = TypeVar("_M", bound=nn.Module)


def seeded(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normal numbers on the host that depend on shape and seed alone."""
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.randn(shape, generator=generator, device="cpu").to(dtype)


def filled(module: _M) -> _M:
    """The module, each of its parameters filled with numbers of its own."""
    for index, parameter in enumerate(module.parameters()):
        parameter.data = seeded(*parameter.shape, seed=index + 1, dtype=parameter.dtype)
    return module


def cos_sin(num_positions: int, rotary_dim: int) -> torch.Tensor:
    """A plain rotary table, float32 ``[num_positions, rotary_dim]``: cosines, then sines."""
    exponents = torch.arange(0, rotary_dim, 2, device="cpu").double() / rotary_dim
    angles = torch.arange(num_positions, device="cpu").double()[:, None] * 10000.0**-exponents
    return torch.cat((angles.cos(), angles.sin()), dim=-1).float()
