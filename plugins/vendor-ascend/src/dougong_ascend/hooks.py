"""What this platform registers: ops in the place of the core's, and single kernels.

The descriptor names this module; it is imported in every process that has chosen the platform, with
torch and without torch-npu. Decorators only mark: ``dougong explain MODEL --platform ascend`` shows
what became of each mark. All of it calls ``torch.ops.npu``, whose ops are there when a step runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

import torch
from dougong.contracts import AtLeast, Needs, hookimpl
from dougong.ops import CustomOp, GeluAndMul, RMSNorm, SiluAndMul

from dougong_ascend import experts, kernels, linear, rotary
from dougong_ascend.names import TORCH_NPU

FLOATS = frozenset({"bfloat16", "float16", "float32"})
ROW_UNIT = 32
"""The gated activations take rows of a multiple of this on 310P; elsewhere any. Models have no
others, so one rule serves for all."""


@CustomOp.register_oot(
    "rms_norm",
    name="ascend/rms_norm",
    when=Needs(dtype=FLOATS, library=TORCH_NPU, weight_format=FLOATS, hidden_size=AtLeast(16)),
)
class AscendRMSNorm(RMSNorm):
    """In one pass over each row, which has at least 32 bytes."""

    def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
        """See `RMSNorm`; rounded once, after the weight."""
        normed: torch.Tensor = torch.ops.npu.npu_rms_norm(x, self.weight, epsilon=self.eps)[0]
        return normed


@CustomOp.register_oot(
    "silu_and_mul", name="ascend/swiglu", when=Needs(dtype=FLOATS, library=TORCH_NPU)
)
class AscendSiluAndMul(SiluAndMul):
    """Both halves of a row in one pass."""

    def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
        """See `SiluAndMul`; rounded once."""
        if x.shape[-1] % ROW_UNIT:
            return self.forward_native(x)
        gated: torch.Tensor = torch.ops.npu.npu_swiglu(x, dim=-1)
        return gated


@CustomOp.register_oot(
    "gelu_and_mul",
    name="ascend/geglu",
    when=Needs(dtype=FLOATS, library=TORCH_NPU, features={"ascend.fused_infer"}),
)
class AscendGeluAndMul(GeluAndMul):
    """Both halves of a row in one pass, the first one activated."""

    def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
        """See `GeluAndMul`; rounded once."""
        gated: torch.Tensor = torch.ops.npu.npu_geglu(
            x, dim=-1, approximate=int(self.approximate == "tanh"), activate_left=True
        )[0]
        return gated


@hookimpl
def dougong_register_ops() -> Iterable[ModuleType]:
    """Marks of this module are found anyway."""
    return [kernels, rotary, linear, experts]
