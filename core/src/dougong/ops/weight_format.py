"""How an op gets its weight, in the words that conditions use."""

from __future__ import annotations

import torch


def format_of(dtype: torch.dtype) -> str:
    """The format of a dense weight: its dtype, as torch names it."""
    return str(dtype).removeprefix("torch.")
