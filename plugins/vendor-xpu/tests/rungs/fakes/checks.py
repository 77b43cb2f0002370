"""What the functions on tensors without memory have in common."""

from __future__ import annotations

import torch

FLOATS = frozenset({torch.float32, torch.float16, torch.bfloat16})
HALVES = frozenset({torch.float16, torch.bfloat16})
EIGHT_BITS = frozenset({torch.float8_e4m3fn, torch.float8_e5m2})


class Refused(ValueError):  # noqa: N818 (named for what happened)
    """A kernel would refuse this, or compute nonsense."""


def need(holds: bool, sentence: str) -> None:
    if not holds:
        raise Refused(sentence)


def alike(first: torch.Tensor, second: torch.Tensor | None, what: str) -> None:
    if second is not None:
        need(first.dtype is second.dtype, f"{what} is {second.dtype}, not {first.dtype}")


def same_shape(first: torch.Tensor, second: torch.Tensor, what: str) -> None:
    need(first.shape == second.shape, f"{what} is {[*second.shape]}, not {[*first.shape]}")


def row(weight: torch.Tensor | None, width: int, what: str) -> None:
    if weight is not None:
        need(tuple(weight.shape) == (width,), f"{what} is {[*weight.shape]}, not [{width}]")
