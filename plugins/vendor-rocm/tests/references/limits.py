"""Refusals, in the words of whoever reads a test's output."""

from __future__ import annotations

import torch

HALVES = (torch.float16, torch.bfloat16)


class Refused(RuntimeError):  # noqa: N818 (named for what the library does)
    """AITER would refuse this call, or compute something else without a word."""


def check(holds: bool, what: str) -> None:
    """Refuse unless ``holds``."""
    if not holds:
        raise Refused(what)


def check_rows(tensor: torch.Tensor, what: str) -> None:
    """Two axes, elements side by side: the kernels know one stride."""
    check(tensor.dim() == 2, f"{what} has {tensor.dim()} axes; the kernel walks over rows")
    check(tensor.stride(-1) == 1, f"elements of {what} are apart")


def check_half(tensor: torch.Tensor, what: str) -> None:
    """The dtypes it was compiled for."""
    check(tensor.dtype in HALVES, f"{what} is {tensor.dtype}; only fp16 and bf16")
