"""Ops of the core computed by ``vllm-xpu-kernels``: norms, rotation, activations.

Each calls one op of the library through torch's dispatcher, tensors first, the rest by name. They
write into tensors that are given to them, and read the last axis as contiguous.
"""

from __future__ import annotations

import torch
from dougong.contracts import MultipleOf, Needs
from dougong.ops import QKVNormRope, RotaryEmbedding, register_kernel

from dougong_xpu.providers import KERNELS

_FLOATS = frozenset({"float32", "bfloat16", "float16"})
_HALVES = frozenset({"bfloat16", "float16"})


def rms_norm_into(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """`RMSNorm` of rows that may lie apart, into new memory."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    torch.ops._C.rms_norm(out, x, weight, epsilon=eps)
    return out


def gated_halves(x: torch.Tensor) -> torch.Tensor:
    """Room for what a gated activation makes of rows of two halves."""
    return torch.empty((*x.shape[:-1], x.shape[-1] // 2), dtype=x.dtype, device=x.device)


@register_kernel(
    "fused_add_rms_norm",
    name="xpu/fused_add_rms_norm",
    when=Needs(library=KERNELS, dtype=_FLOATS, weight_format=_FLOATS),
    mutates=("x", "residual"),
)
def fused_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both in place: the sum into the residual, the normalised sum into the input."""
    if residual is None:  # the first of a model: nothing to add
        return rms_norm_into(x, weight, eps), x
    torch.ops._C.fused_add_rms_norm(x, residual, weight, epsilon=eps)
    return x, residual


@register_kernel("layer_norm", name="xpu/layer_norm", when=Needs(library=KERNELS, dtype=_FLOATS))
def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float
) -> torch.Tensor:
    """Over the last axis, into new memory."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    torch.ops._C.layer_norm(out, x.contiguous(), weight=weight, bias=bias, epsilon=eps)
    return out


@register_kernel(
    "gelu_and_mul",
    name="xpu/gelu_and_mul",
    when=Needs(library=KERNELS, dtype=_FLOATS, approximate={"none", "tanh"}),
)
def gelu_and_mul(x: torch.Tensor, approximate: str) -> torch.Tensor:
    """Two ops of the library, one for each approximation."""
    out = gated_halves(x)
    if approximate == "tanh":
        torch.ops._C.gelu_tanh_and_mul(out, x.contiguous())
    else:
        torch.ops._C.gelu_and_mul(out, x.contiguous())
    return out


@register_kernel(
    "rotary_embedding",
    name="xpu/rotary_embedding",
    when=Needs(library=KERNELS, dtype=_FLOATS, head_dim=MultipleOf(8)),
    mutates=("q", "k"),
)
class XpuRotaryEmbedding:
    """In place. The library reads cosines and sines in the dtype of the queries.

    The table is converted at the first call of each dtype, in warm-up.
    """

    def __init__(self, op: RotaryEmbedding) -> None:
        self._op = op
        self._table = op.cos_sin_cache

    def __call__(
        self, positions: torch.Tensor, q: torch.Tensor, k: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As the op is called."""
        if self._table.dtype != q.dtype:
            self._table = self._op.cos_sin_cache.to(q.dtype)
        # the kernel has one distance between heads for queries and keys
        if k.stride(1) != q.stride(1):
            q, k = q.contiguous(), k.contiguous()
        torch.ops._C.rotary_embedding(
            positions,
            q,
            k,
            head_size=self._op.head_dim,
            cos_sin_cache=self._table,
            is_neox=self._op.is_neox,
        )
        return q, k


@register_kernel(
    "qkv_norm_rope",
    name="xpu/fused_qk_norm_rope",
    when=Needs(library=KERNELS, dtype=_HALVES, has_norm=True, head_dim=128, rotary_dim=128),
    mutates=("qkv",),
)
class XpuQKNormRope:
    """Norm and rotation of queries and keys inside the projection's output, in one kernel.

    The library takes heads of 64, 256 and 512 elements too, and rotates parts of them. Models with
    norms have heads of 128 that are rotated whole, and a condition names one size of both.
    """

    def __init__(self, op: QKVNormRope) -> None:
        assert op.q_norm is not None and op.k_norm is not None, "has_norm is a condition"
        self._op = op
        self._q_weight, self._k_weight = op.q_norm.weight, op.k_norm.weight
        self._eps = op.q_norm.eps

    def __call__(
        self, qkv: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """As the op is called; what it returns are parts of ``qkv``."""
        op = self._op
        qkv = qkv.contiguous()
        torch.ops._C.fused_qk_norm_rope(
            qkv,
            num_heads_q=op.num_heads,
            num_heads_k=op.num_kv_heads,
            num_heads_v=op.num_kv_heads,
            head_dim=op.head_dim,
            eps=self._eps,
            q_weight=self._q_weight,
            k_weight=self._k_weight,
            cos_sin_cache=op.rotary.cos_sin_cache,
            is_neox=op.is_neox,
            position_ids=positions,
        )
        parts = (op.num_heads, op.num_kv_heads, op.num_kv_heads)
        heads = qkv.view(-1, sum(parts), op.head_dim)
        q, k, v = heads.split_with_sizes(parts, 1)
        return q, k, v
