"""What this platform registers: ops it computes itself, and what it wants to hear of.

The descriptor in ``plugin.py`` names this module; it is imported in every process that has chosen
the platform, without the device. Decorators only mark. What becomes of each mark is decided once,
before a model is loaded; ``dougong explain MODEL --platform sim`` shows it with the reason.

Here are classes that take the place of an op; single kernels are in ``kernels.py``. All of it is
plain torch, since the simulated device has no kernels of its own: a vendor calls the library.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any, ClassVar

import torch
from dougong.contracts import ModelRegistration, Needs, hookimpl
from dougong.ops import CustomOp, RMSNorm, SiluAndMul, register_op
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from dougong_sim import kernels
from dougong_sim.platform import KERNELS


@register_op
class SimInverseRMS(CustomOp):
    """``1 / sqrt(mean(x²) + eps)`` over the last axis, in float32.

    An op that the core does not have: for models of the plugin's own or, as here, a part of a class
    below. It needs a meaning in plain torch and an example, which is run when it is registered.

    Call: ``(x)`` → float32, the last axis of length 1.
    """

    key: ClassVar[str] = "sim/inverse_rms"

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Two rows."""
        return cls(1e-5), (torch.linspace(-1, 1, 16).view(2, 8),)

    def forward_native(self, x: torch.Tensor) -> torch.Tensor:
        """What it means."""
        return torch.rsqrt(x.float().square().mean(dim=-1, keepdim=True) + self.eps)


@CustomOp.register_oot("rms_norm")
class SimRMSNorm(RMSNorm):
    """A class in the place of the core's, for every such op of every model.

    It may have parts of its own and prepare its weights once they are loaded.
    """

    def __init__(self, hidden_size: int, eps: float, dtype: torch.dtype) -> None:
        super().__init__(hidden_size, eps, dtype)
        self.inverse_rms = SimInverseRMS(eps)
        self._wide_weight: torch.Tensor | None = None

    def post_load(self) -> None:
        """Weights are there: prepare what every step would otherwise do again."""
        self._wide_weight = self.weight.float()

    def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
        """What runs in place of `RMSNorm.forward_native`; it must mean the same."""
        assert self._wide_weight is not None, "post_load is called before the first step"
        scale: torch.Tensor = self.inverse_rms(x)
        normed = (x.float() * scale).to(x.dtype)
        return (normed.float() * self._wide_weight).to(x.dtype)


@CustomOp.register_oot(
    "silu_and_mul",
    name="sim/wide_silu_and_mul",
    when=Needs(dtype={"float32", "bfloat16"}, features={"sim.wide_rows"}, library=KERNELS),
)
class SimSiluAndMul(SiluAndMul):
    """A class with conditions: where one does not hold, the core's class is made instead."""

    def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
        """Gate and up are halves of one row."""
        half = x.shape[-1] // 2
        return F.silu(x[..., :half]).mul_(x[..., half:])


@hookimpl
def dougong_register_ops() -> Iterable[ModuleType]:
    """Marks of this module are found anyway; those of another one are named here."""
    return [kernels]


@hookimpl
def dougong_register_models() -> Iterable[ModelRegistration]:
    """An architecture by another name; a class of the plugin's own is given by its import path."""
    return [ModelRegistration("SimLlamaForCausalLM", alias_of="LlamaForCausalLM")]
