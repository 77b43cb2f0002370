"""From the attention projection to queries, keys and values: split, normalise, rotate."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from dougong.ops.custom_op import CustomOp
from dougong.ops.example_values import cos_sin, filled, seeded
from dougong.ops.norm import RMSNorm
from dougong.ops.rotary import RotaryEmbedding


class QKVNormRope(CustomOp):
    """Fused slot: split, `RMSNorm` of each head of q and of k where the model has it, rotation.

    Call: ``(qkv, positions)`` with ``qkv`` ``[num_tokens, (num_heads + 2 * num_kv_heads) *
    head_dim]``, queries, then keys, then values, which may be overwritten, and ``positions`` int64
    ``[num_tokens]`` → ``(q, k, v)``, ``[num_tokens, num_heads, head_dim]`` and twice
    ``[num_tokens, num_kv_heads, head_dim]``, last axes contiguous; they may be parts of ``qkv``.

    Its parts are ops of their own, ``q_norm``, ``k_norm`` and ``rotary``, one set per slot, so that
    each is replaced with the slot it belongs to. The table may be one tensor for all slots.

    Args:
        num_heads: Query heads on this rank.
        num_kv_heads: KV heads on this rank.
        rotary_dim: Leading elements of a head that are rotated; even.
        cos_sin_cache: As `RotaryEmbedding` takes it.
        head_dim: Elements per head.
        dtype: Of the norms' weights ``[head_dim]``.
        norm_eps: Of both norms; ``None``: the model has none.
        is_neox: As `RotaryEmbedding` takes it.
    """

    key: ClassVar[str] = "qkv_norm_rope"
    property_names: ClassVar[tuple[str, ...]] = (
        "num_heads",
        "num_kv_heads",
        "head_dim",
        "rotary_dim",
        "is_neox",
        "has_norm",
    )
    kernel_arg_names: ClassVar[tuple[str, ...]] = (
        "q_weight",
        "k_weight",
        "norm_eps",
        "cos_sin_cache",
        "num_heads",
        "num_kv_heads",
        "head_dim",
        "rotary_dim",
        "is_neox",
    )
    may_mutate: ClassVar[tuple[str, ...]] = ("qkv",)

    def __init__(
        self,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        rotary_dim: int,
        cos_sin_cache: torch.Tensor,
        dtype: torch.dtype,
        norm_eps: float | None = None,
        is_neox: bool = True,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = head_dim
        self.rotary_dim = rotary_dim
        self.is_neox = is_neox
        self._parts = (num_heads, num_kv_heads, num_kv_heads)
        self._num_parts = sum(self._parts)
        self.norm_eps = norm_eps
        self.has_norm = norm_eps is not None
        self.q_norm = None if norm_eps is None else RMSNorm(head_dim, norm_eps, dtype)
        self.k_norm = None if norm_eps is None else RMSNorm(head_dim, norm_eps, dtype)
        self.rotary = RotaryEmbedding(
            head_dim, rotary_dim, cos_sin_cache, is_neox, num_heads, num_kv_heads
        )

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three tokens, grouped heads, both norms."""
        op = filled(cls(4, 2, 8, 8, cos_sin(16, 8), torch.float32, norm_eps=1e-6))
        return op, (seeded(3, 64), torch.tensor([0, 15, 7]))

    def forward_native(
        self, qkv: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Views, then the parts."""
        # The method, not `torch.split`, which is two Python functions more in every layer.
        heads = qkv.view(-1, self._num_parts, self.head_dim)
        q, k, v = heads.split_with_sizes(self._parts, 1)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = self.rotary(positions, q, k)
        return q, k, v

    def kernel_args(self) -> tuple[Any, ...]:
        """``(q_weight, k_weight, norm_eps, cos_sin_cache, num_heads, num_kv_heads, head_dim,
        rotary_dim, is_neox)``; without norms the first three are ``None``.
        """
        return (
            None if self.q_norm is None else self.q_norm.weight,
            None if self.k_norm is None else self.k_norm.weight,
            self.norm_eps,
            self.rotary.cos_sin_cache,
            self.num_heads,
            self.num_kv_heads,
            self.head_dim,
            self.rotary_dim,
            self.is_neox,
        )
