"""Ops computed by AITER, on the families it has kernels for.

AITER computes in float16 and bfloat16 alone. Its norms and activations walk over rows of one
stride, which its own code does not check: what lies otherwise is made so before the call.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from dougong.contracts import MultipleOf, Needs
from dougong.ops import MoEExperts, register_kernel
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from dougong_rocm.library import AITER, library_of

HALVES: Final = frozenset({"bfloat16", "float16"})
FEATURE: Final = "rocm.aiter"
_FIRST = 20  # before the Triton kernels
_WIDEST_VECTOR = 8


def aiter_needs(name: str, **properties: Any) -> Needs:
    """Conditions of a kernel that makes one of AITER's calls."""
    return Needs(dtype=HALVES, features={FEATURE}, library=library_of(name), **properties)


@register_kernel(
    "rms_norm",
    name="rocm/aiter_rms_norm",
    when=aiter_needs("rms_norm", weight_format=HALVES),
    priority=_FIRST,
)
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Rounded once, after the weight. Rows of heads are rows: the kernel knows one stride."""
    rows = x.reshape(-1, x.shape[-1])
    normed: torch.Tensor = torch.ops.aiter.rms_norm(rows, weight, eps)
    return normed.view(x.shape)


@register_kernel(
    "fused_add_rms_norm",
    name="rocm/aiter_add_rms_norm",
    when=aiter_needs("rmsnorm2d_fwd_with_add", weight_format=HALVES),
    priority=_FIRST,
)
def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The new residual has memory of its own: rows too long for one pass are read again after it
    was written."""
    if residual is None:
        return rms_norm(x, weight, eps), x
    normed, total = torch.empty_like(x), torch.empty_like(x)
    torch.ops.aiter.rmsnorm2d_fwd_with_add(normed, x, residual, total, weight, eps)
    return normed, total


@register_kernel(
    "silu_and_mul",
    name="rocm/aiter_silu_and_mul",
    when=aiter_needs("silu_and_mul"),
    priority=_FIRST,
)
def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """A row that is no whole number of vectors is written past its end: torch computes it."""
    half = x.shape[-1] // 2
    if half % _WIDEST_VECTOR:
        return F.silu(x[..., :half]) * x[..., half:]
    out = x.new_empty((*x.shape[:-1], half))
    torch.ops.aiter.silu_and_mul(out, x.contiguous())
    return out


@register_kernel(
    "gelu_and_mul",
    name="rocm/aiter_gelu_and_mul",
    when=aiter_needs("gelu_and_mul", approximate="none"),
    priority=_FIRST,
)
def gelu_and_mul(x: torch.Tensor, approximate: str) -> torch.Tensor:
    """By the error function."""
    half = x.shape[-1] // 2
    if half % _WIDEST_VECTOR:
        return F.gelu(x[..., :half], approximate=approximate) * x[..., half:]
    out = x.new_empty((*x.shape[:-1], half))
    torch.ops.aiter.gelu_and_mul(out, x.contiguous())
    return out


@register_kernel(
    "gelu_and_mul",
    name="rocm/aiter_gelu_tanh_and_mul",
    when=aiter_needs("gelu_tanh_and_mul", approximate="tanh"),
    priority=_FIRST,
)
def gelu_tanh_and_mul(x: torch.Tensor, approximate: str) -> torch.Tensor:
    """By the hyperbolic tangent."""
    half = x.shape[-1] // 2
    if half % _WIDEST_VECTOR:
        return F.gelu(x[..., :half], approximate=approximate) * x[..., half:]
    out = x.new_empty((*x.shape[:-1], half))
    torch.ops.aiter.gelu_tanh_and_mul(out, x.contiguous())
    return out


@register_kernel(
    "moe_route",
    name="rocm/aiter_topk_softmax",
    when=aiter_needs("topk_softmax"),
    priority=_FIRST,
)
def moe_route(
    logits: torch.Tensor, top_k: int, renormalize: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Shares in float32, ids in int32, which the op gives as int64."""
    num_tokens = logits.shape[0]
    shares = logits.new_empty((num_tokens, top_k), dtype=torch.float32)
    expert_ids = logits.new_empty((num_tokens, top_k), dtype=torch.int32)
    source_rows = torch.empty_like(expert_ids)  # written, and of no use here
    torch.ops.aiter.topk_softmax(
        shares, expert_ids, source_rows, logits.contiguous(), need_renorm=renormalize
    )
    return expert_ids.long(), shares


@register_kernel(
    "moe_experts",
    name="rocm/aiter_fused_moe",
    when=aiter_needs(
        "fused_moe",
        activation="silu",
        hidden_size=MultipleOf(128),
        intermediate_size=MultipleOf(128),
    ),
    priority=_FIRST,
)
class FusedExperts:
    """Weights in AITER's own order of tiles, made once; the plain ones are given back if nobody
    else reads them.

    The order is not optional: kernels for a single stage read it and do not ask.
    """

    def __init__(self, op: MoEExperts) -> None:
        self._gate_up = AITER.shuffle_weight(op.gate_up_weight)
        self._down = AITER.shuffle_weight(op.down_weight)
        if op.is_alone("rocm/aiter_fused_moe"):
            for weight in (op.gate_up_weight, op.down_weight):
                weight.data = weight.new_empty(0)

    def __call__(
        self, x: torch.Tensor, expert_ids: torch.Tensor, shares: torch.Tensor
    ) -> torch.Tensor:
        """As the op is called."""
        computed: torch.Tensor = AITER.fused_moe(
            x, self._gate_up, self._down, shares, expert_ids.int()
        )
        return computed
