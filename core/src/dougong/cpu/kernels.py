"""The CPU platform's ops: native kernels, marked for the loader and bound where their library was
built.

Each class is made once per op after its weights are loaded; the loader looks through this module.
"""

from __future__ import annotations

import torch

from dougong.cpu import native
from dougong.cpu.native.calls import RopeCall
from dougong.cpu.native_kernel import NATIVE_KERNEL, loaded_library
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
    "NativeAddRMSNorm",
    "NativeGreedySample",
    "NativeRMSNorm",
    "NativeRotaryEmbedding",
    "PackedEmbedding",
    "PackedGateUpAct",
    "PackedLMHead",
    "PackedLinear",
]


@register_kernel("rms_norm", name="cpu/rms_norm", when=NATIVE_KERNEL)
class NativeRMSNorm:
    """``rms_norm`` in one pass over each row."""

    def __init__(self, op: RMSNorm) -> None:
        self._hidden_size = op.weight.shape[0]
        self._call = native.bind_rms_norm(
            loaded_library(),
            op.weight,
            hidden_size=self._hidden_size,
            dtype=op.weight.dtype,
            eps=op.eps,
        )

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """See `RMSNorm`."""
        rows = x.reshape(-1, self._hidden_size)
        out = torch.empty_like(rows)
        self._call(rows, out)
        return out.view(x.shape)


@register_kernel(
    "fused_add_rms_norm",
    name="cpu/fused_add_rms_norm",
    when=NATIVE_KERNEL,
    mutates=("x", "residual"),
)
class NativeAddRMSNorm:
    """``fused_add_rms_norm`` in one pass; the sum goes into the residual's memory."""

    def __init__(self, op: FusedAddRMSNorm) -> None:
        library, weight = loaded_library(), op.weight
        hidden_size, dtype = weight.shape[0], weight.dtype
        self._norm = native.bind_rms_norm(
            library, weight, hidden_size=hidden_size, dtype=dtype, eps=op.eps
        )
        self._add_norm = native.bind_add_rms_norm(
            library, weight, hidden_size=hidden_size, dtype=dtype, eps=op.eps
        )

    def __call__(
        self, x: torch.Tensor, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `FusedAddRMSNorm`."""
        if residual is None:
            out = torch.empty_like(x)
            self._norm(x, out)
            return out, x
        self._add_norm(x, residual, x)
        return x, residual


@register_kernel(
    "rotary_embedding", name="cpu/rotary_embedding", when=NATIVE_KERNEL, mutates=("q", "k")
)
class NativeRotaryEmbedding:
    """``rotary_embedding`` in place."""

    def __init__(self, op: RotaryEmbedding) -> None:
        self._op = op
        self._calls: dict[tuple[int, int, torch.dtype], RopeCall] = {}

    def __call__(
        self, positions: torch.Tensor, q: torch.Tensor, k: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `RotaryEmbedding`. Head counts are the model's, so the first step binds them all."""
        key = (q.shape[1], k.shape[1], q.dtype)
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = self._bind(*key)
        call(q, k, positions)
        return q, k

    def _bind(self, num_heads: int, num_kv_heads: int, dtype: torch.dtype) -> RopeCall:
        return native.bind_rope(
            loaded_library(),
            self._op.cos_sin_cache,
            head_dim=self._op.head_dim,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
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
        out = torch.empty(logits.shape[0], dtype=torch.int64)
        native.argmax_rows(self._library, logits, out)
        return out
