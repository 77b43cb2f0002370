"""Single implementations of ops, each with the conditions under which it may run.

A function is called with the op's arguments and then with what its ``kernel_args`` gives: weights,
constants. A class is made once per op, when its weights are loaded. Conditions are data: they are
judged before a model is loaded, and a bound on tokens costs one comparison in a step.
"""

from __future__ import annotations

import torch
from dougong.contracts import AtLeast, AtMost, MultipleOf, Needs
from dougong.ops import LMHead, register_kernel

from dougong_sim.platform import KERNELS

_NEEDS_LIBRARY = Needs(library=KERNELS)


@register_kernel(
    "fused_add_rms_norm",
    name="sim/add_rms_norm",
    when=_NEEDS_LIBRARY,
    tokens=AtMost(16),  # in longer steps the slot is native, and its norm is `SimRMSNorm`
    mutates=("residual",),
)
def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """A fused slot in one kernel. What it overwrites it declares, and the op must allow it."""
    total = x if residual is None else residual.add_(x)
    wide = total.float()
    scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return (wide * scale).to(x.dtype).mul_(weight), total


@register_kernel(
    "rotary_embedding",
    name="sim/rotary",
    when=Needs(
        library=KERNELS,
        limits={"sim.tile_queries": AtLeast(8)},
        is_neox=True,
        head_dim=MultipleOf(8),
    ),
    mutates=("q", "k"),
)
def rotary(
    positions: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    cos_sin: torch.Tensor,
    rotary_dim: int,
    is_neox: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """In place: queries and keys stay parts of the projection's output."""
    half = rotary_dim // 2
    table = cos_sin.index_select(0, positions).unsqueeze(1)
    cos, sin = table[..., :half], table[..., half:]
    for heads in (q, k):
        first, second = heads[..., :half].float(), heads[..., half:rotary_dim].float()
        turned = first * cos - second * sin, second * cos + first * sin
        heads[..., :half], heads[..., half:rotary_dim] = turned
    return q, k


@register_kernel(
    "linear",
    name="sim/few_rows",
    when=Needs(library=KERNELS, dtype={"float32"}, has_bias=False, in_features=MultipleOf(8)),
    tokens=AtMost(8),
    priority=10,
)
def few_rows_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """For few tokens alone; steps with more go to the next candidate, here plain torch."""
    return torch.mm(weight, x.t()).t().contiguous()


@register_kernel("lm_head", name="sim/turned_head", when=Needs(library=KERNELS, is_tied=False))
class TurnedHead:
    """A kernel that prepares its weight: here it keeps it turned, as the device likes it.

    Where nothing else ever reads the weight, the memory of the first copy is given back.
    """

    def __init__(self, op: LMHead) -> None:
        self._weight = op.weight.t().contiguous()
        if op.is_alone("sim/turned_head"):
            op.weight.data = op.weight.new_empty(0)

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """As the op is called."""
        return torch.mm(hidden, self._weight).float()


@register_kernel("greedy_sample", name="sim/greedy_sample", when=_NEEDS_LIBRARY)
def greedy_sample(logits: torch.Tensor) -> torch.Tensor:
    """A piece of sampling; equal maxima go to the lowest id, as the op says."""
    return logits.argmax(dim=-1)
