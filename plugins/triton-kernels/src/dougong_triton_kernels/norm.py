"""RMSNorm, alone and with a residual."""

from __future__ import annotations

import torch

from dougong_triton_kernels import checks
from dougong_triton_kernels.launching import Launch, run

_BLOCK = 4096


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """``x / sqrt(mean(x²) + eps) * weight`` in float32, rounded once; returns at enqueue.

    Args:
        x: ``[num_tokens, size]`` or ``[num_tokens, heads, size]``; the last axis is contiguous, the
            others may have gaps.
        weight: ``[size]``.
        eps: Added to the mean square.
        out: Of the shape of ``x`` to write to, ``x`` itself among others; ``None``: a new one.

    Returns:
        ``out``.

    Raises:
        TypeError: A dtype.
        ValueError: A shape, device or stride.
    """
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    run(plan_rms_norm(x, None, weight, eps, out))
    return out


def fused_add_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    *,
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The norm of ``x + residual``, and that sum, rounded, in the residual's place.

    What is normalised is the rounded sum. Returns at enqueue.

    Args:
        x: ``[num_tokens, size]``, rows may have gaps between them.
        residual: Likewise; overwritten.
        weight: As `rms_norm` takes it.
        eps: As `rms_norm` takes it.
        out: As `rms_norm` takes it.

    Returns:
        ``out`` and ``residual``.

    Raises:
        TypeError: A dtype.
        ValueError: A shape, device or stride.
    """
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    run(plan_rms_norm(x, residual, weight, eps, out))
    return out, residual


def plan_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    out: torch.Tensor,
) -> Launch:
    """What `rms_norm` launches, or with a residual `fused_add_rms_norm`."""
    checks.same_kind(x=x, weight=weight, out=out)
    checks.shape("weight", weight, x.shape[-1])
    checks.shape("out", out, *x.shape)
    if residual is not None:
        checks.shape("x", x, None, None)
        checks.same_kind(x=x, residual=residual)
        checks.shape("residual", residual, *x.shape)
    elif x.dim() not in (2, 3):
        raise ValueError(f"x has {x.dim()} axes; expected 2 or 3")
    inner = x.shape[1] if x.dim() == 3 else 1
    block = min(checks.next_power_of_2(x.shape[-1]), _BLOCK)
    return Launch(
        kernel="norm.rms_norm_kernel",
        grid=(x.shape[0] * inner, 1, 1),
        arguments={
            "x_ptr": x,
            "residual_ptr": x if residual is None else residual,
            "weight_ptr": weight,
            "out_ptr": out,
            "eps": eps,
            "x_outer": x.stride(0),
            "x_inner": x.stride(1),
            "residual_stride": 0 if residual is None else residual.stride(0),
            "out_outer": out.stride(0),
            "out_inner": out.stride(1),
        },
        constants={
            "INNER": inner,
            "SIZE": x.shape[-1],
            "BLOCK": block,
            "HAS_RESIDUAL": residual is not None,
            "INTERPRETED": False,
        },
        options={"num_warps": 8 if block > 2048 else 4 if block > 256 else 1, "num_stages": 1},
    )
