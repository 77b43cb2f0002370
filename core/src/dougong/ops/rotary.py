"""Rotary position embedding (Su et al. 2021, arXiv:2104.09864)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from dougong.ops.custom_op import CustomOp
from dougong.ops.example_values import cos_sin, seeded


class RotaryEmbedding(CustomOp):
    """Rotate queries and keys by their position.

    Call: ``(positions, q, k)`` → ``(q, k)``; ``positions`` int64 ``[num_tokens]``, ``q``
    ``[num_tokens, num_heads, head_dim]``, ``k`` ``[num_tokens, num_kv_heads, head_dim]``, last axes
    contiguous, first ones possibly slices of a wider tensor. Both may be overwritten.

    Args:
        head_dim: Elements per head.
        rotary_dim: Leading elements that are rotated; even.
        cos_sin_cache: float32 ``[max_position, rotary_dim]``: cosines, then sines. It sets the
            scale and
            the frequencies, so every kind of rope scaling is this one op.
        is_neox: Element ``i`` pairs with ``i + rotary_dim / 2``; otherwise ``2i`` with ``2i + 1``.
        num_heads: Heads of every ``q``; 0: calls differ, or nobody said.
        num_kv_heads: Heads of every ``k``, likewise.
    """

    key: ClassVar[str] = "rotary_embedding"
    property_names: ClassVar[tuple[str, ...]] = (
        "head_dim",
        "rotary_dim",
        "is_neox",
        "num_heads",
        "num_kv_heads",
    )
    kernel_arg_names: ClassVar[tuple[str, ...]] = ("cos_sin_cache", "rotary_dim", "is_neox")
    may_mutate: ClassVar[tuple[str, ...]] = ("q", "k")

    def __init__(
        self,
        head_dim: int,
        rotary_dim: int,
        cos_sin_cache: torch.Tensor,
        is_neox: bool = True,
        num_heads: int = 0,
        num_kv_heads: int = 0,
    ) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.rotary_dim = rotary_dim
        self.is_neox = is_neox
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.cos_sin_cache: torch.Tensor
        self.register_buffer("cos_sin_cache", cos_sin_cache, persistent=False)

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three tokens, grouped heads, a part of each head rotated."""
        positions = torch.tensor([0, 15, 7])
        return cls(16, 8, cos_sin(16, 8)), (positions, seeded(3, 4, 16), seeded(3, 2, 16, seed=1))

    def forward_native(
        self, positions: torch.Tensor, q: torch.Tensor, k: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotate in float32, round once to the storage dtype."""
        cos, sin = self.cos_sin_cache[positions].chunk(2, dim=-1)
        return self._rotate(q, cos, sin), self._rotate(k, cos, sin)

    def kernel_args(self) -> tuple[Any, ...]:
        """``(cos_sin_cache, rotary_dim, is_neox)``."""
        return self.cos_sin_cache, self.rotary_dim, self.is_neox

    def _rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        turned = x[..., : self.rotary_dim].float()
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        if self.is_neox:
            first, second = turned.chunk(2, dim=-1)
        else:
            first, second = turned[..., 0::2], turned[..., 1::2]
        pair = (first * cos - second * sin, second * cos + first * sin)
        joined = torch.cat(pair, dim=-1) if self.is_neox else torch.stack(pair, dim=-1).flatten(-2)
        rotated = joined.to(x.dtype)
        if self.rotary_dim == self.head_dim:
            return rotated
        return torch.cat((rotated, x[..., self.rotary_dim :]), dim=-1)
