"""Attention in both directions, of tokens that are all in one step (Devlin et al. 2018,
arXiv:1810.04805)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from dougong.ops.custom_op import CustomOp
from dougong.ops.example_values import seeded


class EncoderAttention(CustomOp):
    """Each token sees every token of its own sequence, before and after it, and no other.

    No key is kept: whole sequences come in one step, one after the other.

    Call: ``(q, k, v, query_starts, query_starts_cpu, longest)`` → ``[num_tokens, num_heads,
    head_dim]``. ``q``, ``k`` and ``v`` are ``[num_tokens, num_heads, head_dim]`` and may be views
    with strides of their own. ``query_starts`` is int32 ``[num_seqs + 1]``: where each sequence
    begins, then ``num_tokens``; ``query_starts_cpu`` has the same values on the host, so that
    nobody waits for the device. ``longest`` is the length of the longest sequence, an int.

    Args:
        num_heads: Heads of q, k and v.
        head_dim: Elements of each.
        scale: Factor of ``q @ k``.
    """

    key: ClassVar[str] = "encoder_attention"
    property_names: ClassVar[tuple[str, ...]] = ("num_heads", "head_dim")
    kernel_arg_names: ClassVar[tuple[str, ...]] = ("scale",)

    def __init__(self, num_heads: int, head_dim: int, scale: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.scale = scale

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Four sequences of two lengths, those of one length not side by side."""
        starts = torch.tensor([0, 2, 5, 7, 10], dtype=torch.int32)
        q, k, v = seeded(3, 10, 4, 8).unbind()
        return cls(4, 8, 8**-0.5), (q, k, v, starts, starts.clone(), 3)

    def forward_native(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        query_starts: torch.Tensor,
        query_starts_cpu: torch.Tensor,
        longest: int,
    ) -> torch.Tensor:
        """Sequences of one length together, so that nothing is computed for padding."""
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        if not len(q):
            return out
        for length, starts in _by_length(query_starts_cpu.tolist()).items():
            if len(starts) == 1:
                place = slice(starts[0], starts[0] + length)
                out[place] = self._attend(q[None, place], k[None, place], v[None, place])[0]
                continue
            shape = len(starts), length, self.num_heads, self.head_dim
            rows = torch.tensor(starts)[:, None] + torch.arange(length)
            rows = rows.flatten().to(q.device, non_blocking=True)
            parts = (part.index_select(0, rows).view(shape) for part in (q, k, v))
            out.index_copy_(0, rows, self._attend(*parts).flatten(0, 1))
        return out

    def kernel_args(self) -> tuple[Any, ...]:
        """``(scale,)``."""
        return (self.scale,)

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Of ``[num_seqs, length, num_heads, head_dim]`` each, of the same shape."""
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, scale=self.scale).transpose(1, 2)


def _by_length(bounds: list[int]) -> dict[int, list[int]]:
    """Where sequences begin, by their length; those without a token are left out."""
    found: dict[int, list[int]] = {}
    for start, end in pairwise(bounds):
        if end > start:
            found.setdefault(end - start, []).append(start)
    return found
