"""How a kernel refuses: with a ``RuntimeError``, as its checks do."""

from __future__ import annotations

import torch

HALVES = (torch.bfloat16, torch.float16)
FLOATS = (torch.float32, *HALVES)


def check(condition: bool, text: str) -> None:
    """Raise where a condition of the kernel does not hold."""
    if not condition:
        raise RuntimeError(text)


def check_float(x: torch.Tensor, op: str) -> None:
    """What the dispatch macros of the library take."""
    check(x.dtype in FLOATS, f'"{op}" not implemented for {x.dtype}')
