"""What this wheel registers for the ops of the core, and calls that its conditions admit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from dougong.contracts import Mark, RegistrationKind
from dougong.contracts.registration import marks_of
from dougong.ops import (
    OPS,
    CustomOp,
    FusedAddRMSNorm,
    GeluAndMul,
    LayerNorm,
    MoEExperts,
    MoERoute,
    QKVNormRope,
    RMSNorm,
    RotaryEmbedding,
    SiluAndMul,
)

from dougong_xpu import hooks, ipex_kernels, kernels, moe
from dougong_xpu.providers import KERNELS

Call = tuple[CustomOp, tuple[Any, ...]]

MARKED = [
    (target, mark)
    for module in (hooks, kernels, moe, ipex_kernels)
    for target in vars(module).values()
    if getattr(target, "__module__", "") == module.__name__
    for mark in marks_of(target)
]
OURS = [(target, mark) for target, mark in MARKED if mark.details.when.library == KERNELS]

TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def drawn(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Rounded to the dtype from the same numbers every time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def filled(op: CustomOp) -> CustomOp:
    """With weights near 1, and small ones in matrices."""
    for index, weight in enumerate(op.parameters()):
        noise = drawn(*weight.shape, dtype=torch.float32, seed=index + 7)
        weight.data = (noise * 0.1 + (weight.dim() == 1)).to(weight.dtype)
    return op


def table(num_positions: int, rotary_dim: int) -> torch.Tensor:
    """Cosines, then sines."""
    angles = torch.arange(num_positions).unsqueeze(1) / 10 ** (
        torch.arange(rotary_dim // 2) / rotary_dim
    )
    return torch.cat((angles.cos(), angles.sin()), dim=-1)


def call_of(mark: Mark, dtype: torch.dtype) -> Call:
    """An op that the mark's conditions admit, and arguments."""
    return _CALLS[mark.key](mark, dtype)


def _norm(mark: Mark, dtype: torch.dtype) -> Call:
    return filled(RMSNorm(64, 1e-5, dtype)), (drawn(3, 64, dtype=dtype),)


def _heads(mark: Mark, dtype: torch.dtype) -> Call:
    """Heads inside a wider tensor, as a model has them."""
    wide = drawn(3, 8, 64, dtype=dtype)
    return filled(RMSNorm(64, 1e-5, dtype)), (wide[:, 2:6],)


def _add_norm(mark: Mark, dtype: torch.dtype) -> Call:
    rows = drawn(3, 64, dtype=dtype), drawn(3, 64, dtype=dtype, seed=1)
    return filled(FusedAddRMSNorm(64, 1e-5, dtype)), rows


def _layer_norm(mark: Mark, dtype: torch.dtype) -> Call:
    return filled(LayerNorm(64, 1e-5, dtype)), (drawn(3, 64, dtype=dtype),)


def _silu(mark: Mark, dtype: torch.dtype) -> Call:
    return SiluAndMul(), (drawn(3, 48, dtype=dtype),)


def _gelu(mark: Mark, dtype: torch.dtype) -> Call:
    return GeluAndMul("tanh"), (drawn(3, 48, dtype=dtype),)


def _rotary(mark: Mark, dtype: torch.dtype) -> Call:
    qkv = drawn(3, 8, 16, dtype=dtype)
    op = RotaryEmbedding(16, 16, table(32, 16), num_heads=4, num_kv_heads=2)
    return op, (torch.tensor([0, 31, 7]), qkv[:, :4], qkv[:, 4:6])


def _qkv(mark: Mark, dtype: torch.dtype) -> Call:
    op = QKVNormRope(4, 2, 128, 128, table(32, 128), dtype, norm_eps=1e-6)
    return filled(op), (drawn(3, 8 * 128, dtype=dtype), torch.tensor([0, 31, 7]))


def _route(mark: Mark, dtype: torch.dtype) -> Call:
    logits = drawn(5, 8, dtype=dtype)
    logits[3] = 0.5
    return MoERoute(8, 2, renormalize=True), (logits,)


def _experts(mark: Mark, dtype: torch.dtype) -> Call:
    op = filled(MoEExperts(4, 32, 64, "silu", dtype))
    expert_ids = torch.tensor([[3, 0], [0, 2], [2, 3]])
    shares = torch.tensor([[0.7, 0.3], [0.6, 0.4], [0.5, 0.25]])
    return op, (drawn(3, 32, dtype=dtype), expert_ids, shares)


_CALLS: dict[str, Callable[[Mark, torch.dtype], Call]] = {
    "rms_norm": _norm,
    "fused_add_rms_norm": _add_norm,
    "layer_norm": _layer_norm,
    "silu_and_mul": _silu,
    "gelu_and_mul": _gelu,
    "rotary_embedding": _rotary,
    "qkv_norm_rope": _qkv,
    "moe_route": _route,
    "moe_experts": _experts,
}
HEADS = _heads


def run(target: Any, mark: Mark, op: CustomOp, args: tuple[Any, ...]) -> Any:
    """As the core binds it: a class in the op's place, a function, or a prepared kernel."""
    if mark.kind is RegistrationKind.OP_CLASS:
        return target.forward_oot(_as_class(target, op), *args)
    if isinstance(target, type):
        return target(op)(*args)
    return target(*args, *op.kernel_args())


def native(op: CustomOp, args: tuple[Any, ...]) -> Any:
    """What the op means."""
    return op.forward_native(*copy.deepcopy(args))


def _as_class(cls: type[CustomOp], op: CustomOp) -> CustomOp:
    made = copy.copy(op)
    made.__class__ = cls
    return made


def names() -> set[str]:
    """Keys of ops that a call is known for."""
    return set(_CALLS) & set(OPS)
