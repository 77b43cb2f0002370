"""The CPU platform's ops: native kernels, marked for the loader and bound where their library was
built.

Each class is made once per op after its weights are loaded; the loader looks through this module.
"""

from __future__ import annotations

import torch

from dougong.cpu import native
from dougong.cpu.blocks import BlockEmbedding, BlockGateUpAct, BlockLinear, BlockLMHead
from dougong.cpu.native.calls import RopeCall
from dougong.cpu.native_kernel import NATIVE_KERNEL, WEIGHTED_KERNEL, loaded_library, refuse
from dougong.cpu.packed import PackedEmbedding, PackedGateUpAct, PackedLinear, PackedLMHead
from dougong.cpu.platform import NATIVE_LIBRARY
from dougong.ops import (
    FusedAddRMSNorm,
    GreedySample,
    Needs,
    RMSNorm,
    RotaryEmbedding,
    register_kernel,
)

__all__ = [
    "BlockEmbedding",
    "BlockGateUpAct",
    "BlockLMHead",
    "BlockLinear",
    "NativeAddRMSNorm",
    "NativeGreedySample",
    "NativeRMSNorm",
    "NativeRotaryEmbedding",
    "PackedEmbedding",
    "PackedGateUpAct",
    "PackedLMHead",
    "PackedLinear",
]


@register_kernel("rms_norm", name="cpu/rms_norm", when=WEIGHTED_KERNEL)
class NativeRMSNorm:
    """``rms_norm`` in one pass over each row."""

    def __init__(self, op: RMSNorm) -> None:
        self._hidden_size, self._dtype = op.weight.shape[0], op.weight.dtype
        self._call = native.bind_rms_norm(
            loaded_library(),
            op.weight,
            hidden_size=self._hidden_size,
            dtype=self._dtype,
            eps=op.eps,
        )

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """See `RMSNorm`."""
        if x.dtype is not self._dtype:
            refuse(self._dtype, x)
        rows = x.reshape(-1, self._hidden_size)
        out = torch.empty_like(rows)
        self._call(rows, out)
        return out.view(x.shape)


@register_kernel(
    "fused_add_rms_norm",
    name="cpu/fused_add_rms_norm",
    when=WEIGHTED_KERNEL,
    mutates=("x", "residual"),
)
class NativeAddRMSNorm:
    """``fused_add_rms_norm`` in one pass; the sum goes into the residual's memory."""

    def __init__(self, op: FusedAddRMSNorm) -> None:
        library, weight = loaded_library(), op.weight
        hidden_size, self._dtype = weight.shape[0], weight.dtype
        self._norm = native.bind_rms_norm(
            library, weight, hidden_size=hidden_size, dtype=self._dtype, eps=op.eps
        )
        self._add_norm = native.bind_add_rms_norm(
            library, weight, hidden_size=hidden_size, dtype=self._dtype, eps=op.eps
        )

    def __call__(
        self, x: torch.Tensor, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `FusedAddRMSNorm`."""
        if x.dtype is not self._dtype:
            refuse(self._dtype, x)
        if residual is None:
            out = torch.empty_like(x)
            self._norm(x, out)
            return out, x
        if residual.dtype is not self._dtype:
            refuse(self._dtype, residual)
        self._add_norm(x, residual, x)
        return x, residual


@register_kernel(
    "rotary_embedding", name="cpu/rotary_embedding", when=NATIVE_KERNEL, mutates=("q", "k")
)
class NativeRotaryEmbedding:
    """``rotary_embedding`` in place."""

    def __init__(self, op: RotaryEmbedding) -> None:
        self._op = op
        self._heads = (op.num_heads, op.num_kv_heads)
        self._may_vary = 0 in self._heads
        self._dtype: torch.dtype | None = None

    def __call__(
        self, positions: torch.Tensor, q: torch.Tensor, k: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `RotaryEmbedding`. Bound in the first step, and anew for one that differs."""
        if q.dtype is not self._dtype or k.dtype is not self._dtype or self._may_vary:
            self._fit(q, k)
        self._call(q, k, positions)
        return q, k

    def _fit(self, q: torch.Tensor, k: torch.Tensor) -> None:
        if k.dtype is not q.dtype:
            refuse(q.dtype, k)
        heads = (q.shape[1], k.shape[1]) if self._may_vary else self._heads
        if (heads, q.dtype) != (self._heads, self._dtype):
            self._call = self._bind(heads, q.dtype)
            self._heads, self._dtype = heads, q.dtype

    def _bind(self, heads: tuple[int, int], dtype: torch.dtype) -> RopeCall:
        return native.bind_rope(
            loaded_library(),
            self._op.cos_sin_cache,
            head_dim=self._op.head_dim,
            num_heads=heads[0],
            num_kv_heads=heads[1],
            dtype=dtype,
            interleaved=not self._op.is_neox,
        )


@register_kernel("greedy_sample", name="cpu/greedy_sample", when=Needs(library=NATIVE_LIBRARY))
class NativeGreedySample:
    """``greedy_sample`` over float32 rows."""

    def __init__(self, op: GreedySample) -> None:
        self._library = loaded_library()

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        """See `GreedySample`."""
        if logits.dtype is not torch.float32:
            refuse(torch.float32, logits)
        out = torch.empty(logits.shape[0], dtype=torch.int64)
        native.argmax_rows(self._library, logits, out)
        return out
