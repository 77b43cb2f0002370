"""The ops a built model consists of."""

from __future__ import annotations

from torch import nn

from dougong.describe import OpSite
from dougong.ops.custom_op import CustomOp


def outline_ops(module: nn.Module, prefix: str = "") -> tuple[OpSite, ...]:
    """Every op under ``module``, in its order; one used in several places counts once.

    Args:
        module: A model, which may have no memory (torch's ``meta`` device), or a part of it.
        prefix: Put before each path, as in ``"sampler."``.
    """
    return tuple(
        OpSite(key=op.key, path=prefix + path, properties=op.properties())
        for path, op in named_ops(module)
    )


def named_ops(module: nn.Module) -> tuple[tuple[str, CustomOp], ...]:
    """Path and op of every op under ``module``, itself included."""
    return tuple(
        (path, found) for path, found in module.named_modules() if isinstance(found, CustomOp)
    )
