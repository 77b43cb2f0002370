"""Gated activations."""

from __future__ import annotations

import torch

from dougong_triton_kernels import checks
from dougong_triton_kernels.launching import Launch, run

_BLOCK = 1024


def silu_and_mul(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """``silu(x[:, :d]) * x[:, d:]``, computed in float32 and rounded once; returns at enqueue.

    Args:
        x: ``[num_tokens, 2 * d]``, rows may have gaps between them.
        out: ``[num_tokens, d]`` to write to; ``None``: a new one.

    Returns:
        ``out``.

    Raises:
        TypeError: A dtype.
        ValueError: A shape, device or stride.
    """
    checks.shape("x", x, None, None)
    if x.shape[1] % 2:
        raise ValueError(f"x has {x.shape[1]} columns; gate and up are halves, so it is even")
    if out is None:
        out = torch.empty(x.shape[0], x.shape[1] // 2, dtype=x.dtype, device=x.device)
    run(plan_silu_and_mul(x, out))
    return out


def plan_silu_and_mul(x: torch.Tensor, out: torch.Tensor) -> Launch:
    """What `silu_and_mul` launches."""
    checks.same_kind(x=x, out=out)
    checks.shape("out", out, x.shape[0], x.shape[1] // 2)
    size = out.shape[1]
    block = min(checks.next_power_of_2(size), _BLOCK)
    return Launch(
        kernel="activation.silu_and_mul_kernel",
        grid=(out.shape[0], -(-size // block), 1),
        arguments={
            "x_ptr": x,
            "out_ptr": out,
            "size": size,
            "x_stride": x.stride(0),
            "out_stride": out.stride(0),
        },
        constants={"BLOCK": block, "INTERPRETED": False},
        options={"num_warps": 4 if block > 256 else 1, "num_stages": 1},
    )
