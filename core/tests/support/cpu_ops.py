"""The CPU platform's kernels, bound to single ops without an engine."""

from __future__ import annotations

from typing import Any

from torch import nn

from dougong.contracts import OpPiece, Registration
from dougong.contracts.registration import marked_objects
from dougong.cpu import kernels
from dougong.cpu.platform import NATIVE_LIBRARY
from dougong.ops import BindRequest, CustomOp
from dougong.ops.binding import bind_ops
from dougong.ops.registry import OpRegistry
from tests.support.registrations import assignments

REGISTRY = OpRegistry.from_registrations(
    Registration(mark=mark, target=target, plugin="cpu", distribution="dougong")
    for target, mark in marked_objects([vars(kernels)])
)
OF_BLOCKS = {one.key: one.name for one in REGISTRY.candidates() if "/block_" in one.name}
"""Kernels for weights that stay as their file stores them."""

OURS = {one.key: one.name for one in REGISTRY.candidates() if one.name not in OF_BLOCKS.values()}


def bound(op: nn.Module, **names: str | tuple[OpPiece, ...]) -> dict[str, dict[str, int]]:
    """Bind this platform's kernel to every op that has one, but for what ``names`` says."""
    return bind_ops(op, REGISTRY, assignments(op, OURS | names)).implementations


def unmet(op: CustomOp, **request: Any) -> str:
    """Why this platform's kernel is not for an op; empty: it is."""
    request = {"dtype": "float32", "loaded": frozenset({NATIVE_LIBRARY})} | request
    (candidate,) = (one for one in REGISTRY.candidates() if one.name == OURS[op.key])
    return candidate.when.check(BindRequest(**request), op.properties()).reason
