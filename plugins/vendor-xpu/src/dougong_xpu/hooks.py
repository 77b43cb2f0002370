"""What this platform registers: classes in the place of ops, and the modules with its kernels.

Imported in every process that has chosen the platform, without the vendor's libraries. Decorators
only mark; what becomes of each mark is decided once, before a model is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

import torch
from dougong.contracts import Needs, hookimpl
from dougong.ops import CustomOp, RMSNorm, SiluAndMul

from dougong_xpu import ipex_kernels, kernels, moe
from dougong_xpu.kernels import gated_halves, rms_norm_into
from dougong_xpu.providers import KERNELS

_FLOATS = frozenset({"float32", "bfloat16", "float16"})


@CustomOp.register_oot(
    "rms_norm",
    name="xpu/rms_norm",
    when=Needs(library=KERNELS, dtype=_FLOATS, weight_format=_FLOATS),
)
class XpuRMSNorm(RMSNorm):
    """The library's norm, for whole rows and for heads inside a wider tensor."""

    def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
        """Rounds to the storage dtype before the weight is applied, as the op does."""
        return rms_norm_into(x, self.weight, self.eps)


@CustomOp.register_oot(
    "silu_and_mul", name="xpu/silu_and_mul", when=Needs(library=KERNELS, dtype=_FLOATS)
)
class XpuSiluAndMul(SiluAndMul):
    """The library's gated activation."""

    def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
        """Gate and up are halves of one row."""
        out = gated_halves(x)
        torch.ops._C.silu_and_mul(out, x.contiguous())
        return out


@hookimpl
def dougong_register_ops() -> Iterable[ModuleType]:
    """Marks of this module are found anyway; these are the others."""
    return [kernels, moe, ipex_kernels]
