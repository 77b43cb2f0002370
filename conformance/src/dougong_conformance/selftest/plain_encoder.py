"""Attention in both directions as one masked product over a whole step, to be made wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dougong_conformance.selftest.changes import with_op
from dougong_conformance.session import PluginUnderTest

Hidden = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From each token's sequence and its place, int64 ``[num_tokens]`` both, to what is hidden from
whom: bool ``[queries, keys]``."""


def other_sequences(sequence: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """What must be hidden: tokens of other sequences, and no others."""
    return sequence[:, None] != sequence[None, :]


def with_encoder_attention(
    plugin: PluginUnderTest, hidden: Hidden = other_sequences
) -> PluginUnderTest:
    """A plugin whose encoders attend so, probabilities rounded to the storage dtype."""

    def compute(op: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any) -> Any:
        _, starts, _ = rest
        lengths = starts[1:] - starts[:-1]
        sequence = torch.repeat_interleave(torch.arange(lengths.shape[0]), lengths)
        is_hidden = hidden(sequence, torch.arange(q.shape[0])).to(q.device)
        scores = torch.einsum("qhd,khd->hqk", q.float(), k.float()) * op.scale
        shares = scores.masked_fill(is_hidden, -torch.inf).softmax(dim=-1).to(q.dtype)
        return torch.einsum("hqk,khd->qhd", shares.float(), v.float()).to(q.dtype)

    return with_op(plugin, "encoder_attention", compute)
