"""Marked objects as the loader would hand them over, and plans that name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from dougong.contracts import OpAssignment, OpPiece, Registration
from dougong.contracts.registration import marked_objects
from dougong.ops import NATIVE
from dougong.ops.outline import outline_ops
from dougong.ops.registry import OpRegistry


def registry(*targets: Any, distribution: str = "acme 1.0") -> OpRegistry:
    return OpRegistry.from_registrations(registrations(*targets, distribution=distribution))


def registrations(*targets: Any, distribution: str = "acme 1.0") -> list[Registration]:
    namespace = {f"target{index}": target for index, target in enumerate(targets)}
    return [
        Registration(mark=mark, target=target, plugin="acme", distribution=distribution)
        for target, mark in marked_objects([namespace])
    ]


def assignments(
    module: nn.Module,
    names: Mapping[str, str | tuple[OpPiece, ...]] | None = None,
    *,
    prefix: str = "",
) -> list[OpAssignment]:
    """A plan for every op under ``module``: what ``names`` says by path or by key, else native."""
    names = names or {}
    planned = []
    for site in outline_ops(module, prefix):
        wanted = names.get(site.path, names.get(site.key, NATIVE))
        pieces = (OpPiece(wanted),) if isinstance(wanted, str) else wanted
        planned.append(OpAssignment(key=site.key, paths=(site.path,), pieces=pieces))
    return planned
