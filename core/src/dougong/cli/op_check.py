"""Ops of the catalogue on one device, by the implementations that a model would get there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dougong.config.op_switches import OpSwitches
from dougong.contracts import Capabilities, KernelReport, OpAssignment
from dougong.describe import OpSite
from dougong.planner.op_candidates import OpCandidates, device_request
from dougong.planner.op_site import SiteVerdict, judge_site
from dougong.platforms import LoadedPlatform

if TYPE_CHECKING:
    import torch

    from dougong.ops import CustomOp
    from dougong.ops.registry import OpRegistry

_SIZE = 64
_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class OpCheck:
    """What one op did.

    Attributes:
        error: Largest difference from float64 on the host, relative to the largest value.
        detail: Which implementation ran, and why others were passed over.
    """

    error: float
    detail: str


def check_op(
    loaded: LoadedPlatform, index: int, kernels: KernelReport, device: torch.device, key: str
) -> OpCheck:
    """Bind one op with the registered kernels, run it, and compare.

    Args:
        loaded: The platform; its device ``index`` is current.
        index: Of the device.
        kernels: What `Platform.import_kernels` reported.
        device: The torch device of ``index``.
        key: ``"linear"`` or ``"rms_norm"``.
    """
    import torch

    from dougong.ops.binding import bind_ops
    from dougong.ops.registry import OpRegistry

    arch = next(found.arch for found in loaded.selection.devices if found.index == index)
    claims = loaded.platform.claims(arch)
    dtype = getattr(torch, claims.dtypes[0])
    registry = OpRegistry.from_registrations(loaded.registrations)
    capabilities = Capabilities(claims, loaded.platform.facts(index))
    verdict = _choose(_BUILDERS[key](dtype, device), registry, capabilities, kernels)
    assignments = [OpAssignment(key=key, paths=("",), pieces=verdict.pieces)]
    with registry.overriding(assignments):
        op = _BUILDERS[key](dtype, device)
    generator = torch.Generator().manual_seed(0)
    weight, x = (torch.randn(shape, generator=generator).to(dtype) for shape in _shapes(op))
    op.get_parameter("weight").copy_(weight)
    bind_ops(op, registry, assignments)
    with loaded.platform.runtime.inference_mode():
        found = op(x.to(device))
        loaded.platform.runtime.synchronize()
    over = (f"passed over: {name}: {why}" for name, why in verdict.objections.items())
    detail = "; ".join([f"by {op.implementation} in {claims.dtypes[0]}", *over])
    return OpCheck(relative_error(found, _EXPECTED[key](x.double(), weight.double())), detail)


def _choose(
    op: CustomOp, registry: OpRegistry, capabilities: Capabilities, kernels: KernelReport
) -> SiteVerdict:
    """The planner's choice for an op that belongs to no model."""
    from dougong.engine.candidates import condition_environment

    ops = registry.candidates()
    environment = condition_environment(ops)
    dtype = capabilities.claims.dtypes[0]
    request = device_request(capabilities, dtype, kernels, environment)
    site = OpSite(key=op.key, path="", properties=op.properties())
    return judge_site(site, OpCandidates.on_device(ops, request, _SIZE), OpSwitches(), {})


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest difference, relative to the largest expected value; infinite where one is NaN."""
    error = (found.cpu().double() - expected).abs().max() / expected.abs().max()
    return float(error.nan_to_num(nan=float("inf")))


def _linear(dtype: torch.dtype, device: torch.device) -> CustomOp:
    import torch

    from dougong.ops import Linear

    with torch.device(device):
        return Linear(_SIZE, _SIZE, has_bias=False, dtype=dtype)


def _rms_norm(dtype: torch.dtype, device: torch.device) -> CustomOp:
    import torch

    from dougong.ops import RMSNorm

    with torch.device(device):
        return RMSNorm(_SIZE, _EPS, dtype)


def _shapes(op: CustomOp) -> tuple[tuple[int, ...], tuple[int, int]]:
    """Of weight and input."""
    return tuple(op.get_parameter("weight").shape), (_SIZE, _SIZE)


def _expected_rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * (x.square().mean(-1, keepdim=True) + _EPS).rsqrt() * weight


_BUILDERS: Mapping[str, Callable[[torch.dtype, torch.device], CustomOp]] = {
    "linear": _linear,
    "rms_norm": _rms_norm,
}
_EXPECTED: Mapping[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "linear": lambda x, weight: x @ weight.T,
    "rms_norm": _expected_rms_norm,
}
CHECKED_OPS = tuple(_BUILDERS)
