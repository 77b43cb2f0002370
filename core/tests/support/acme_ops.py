"""What a made-up vendor registers: two kernels, two rival classes, and an op of its own."""

from __future__ import annotations

import torch

from dougong.contracts import AtMost
from dougong.ops import CustomOp, MultipleOf, Needs, RMSNorm, register_kernel, register_op


@register_kernel(
    "rms_norm",
    name="acme/wide",
    when=Needs(dtype={"bfloat16"}, hidden_size=MultipleOf(64)),
    tokens=AtMost(512),
    priority=-1,
)
def wide(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x


@register_kernel("rms_norm", name="acme/any", priority=2)
def anything(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x


@CustomOp.register_oot("rms_norm")
class AcmeNorm(RMSNorm):
    def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
        return x


@CustomOp.register_oot("rms_norm", name="other/norm")
class OtherNorm(RMSNorm):
    def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
        return x


@register_op
class Twice(CustomOp):
    key = "acme/twice"

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[torch.Tensor, ...]]:
        return cls(), (torch.ones(2),)

    def forward_native(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@register_kernel("acme/twice", name="acme/fast_twice")
def fast_twice(x: torch.Tensor) -> torch.Tensor:
    return x + x
