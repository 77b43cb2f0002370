"""Give every op of a built model the implementations that the plan names; nothing is chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from dougong.contracts import ImplementationError, OpAssignment
from dougong.contracts.rank_plan import NATIVE
from dougong.ops.assignments import PlannedPiece, resolve_assignments
from dougong.ops.custom_op import CustomOp
from dougong.ops.dispatch import BoundPiece, with_extra
from dougong.ops.failures import blames_implementation, reason_of
from dougong.ops.implementation import Implementation
from dougong.ops.outline import named_ops
from dougong.ops.registry import OpRegistry

Classified = Callable[[], AbstractContextManager[None]]


@dataclass(slots=True)
class BindReport:
    """What was bound.

    Attributes:
        implementations: Op key → implementation → number of ops that run it; those inside a fused
            slot that has an implementation of its own do not run.
    """

    implementations: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, other: BindReport) -> None:
        """Take in the report of another part of the model."""
        for key, by_name in other.implementations.items():
            for name, count in by_name.items():
                self.count(key, name, count)

    def count(self, key: str, name: str, more: int = 1) -> None:
        """``more`` ops of ``key`` run ``name``."""
        by_name = self.implementations.setdefault(key, {})
        by_name[name] = by_name.get(name, 0) + more


def bind_ops(
    module: nn.Module,
    registry: OpRegistry,
    assignments: Iterable[OpAssignment],
    *,
    prefix: str = "",
    classified: Classified = nullcontext,
) -> BindReport:
    """Bind every `CustomOp` under ``module`` as assigned, after its weights are loaded.

    Args:
        module: Built inside `OpRegistry.overriding` with the same assignments.
        registry: Of this engine.
        assignments: Of the whole plan. Paths outside ``prefix`` are left alone; without a prefix,
            those of the sampler are.
        prefix: Stands before each path in the plan, as in ``"sampler."``.
        classified: Put around the making of each implementation; turns a vendor's exceptions into
            `DeviceError` where they are one.

    Raises:
        ImplementationError: Implementations could not be made; all of them are named.
        PluginError: The plan does not fit what was built; every difference is listed.
        DeviceError: The device failed, which is no implementation's fault.
    """
    ops = {prefix + path: op for path, op in named_ops(module)}
    planned = resolve_assignments(ops, assignments, registry, prefix)
    for path, op in ops.items():
        op.path = path
        op.assigned = tuple(dict.fromkeys(piece.name for piece in planned[path]))
    failures: dict[str, Exception] = {}
    reasons: dict[str, str] = {}
    for path, op in ops.items():
        pieces = []
        for piece in planned[path]:
            if piece.name in failures:
                continue  # it would fail again
            try:
                with classified():
                    call = _callable_for(op, piece)
            except Exception as exc:
                if not blames_implementation(exc):
                    raise
                failures[piece.name] = exc
                reasons[piece.name] = f"making it for op {op.key} at {path}: {reason_of(exc)}"
            else:
                pieces.append(BoundPiece(piece.name, call, piece.up_to))
        if not failures:
            op.bind_pieces(pieces)
    if failures:
        raise ImplementationError(reasons) from next(iter(failures.values()))
    return _report(ops)


def _callable_for(op: CustomOp, piece: PlannedPiece) -> Callable[..., Any]:
    found = piece.implementation
    if found is None:
        return op.forward_native
    if found.is_op_class:
        return op.forward_oot
    return _kernel_for(op, found)


def _kernel_for(op: CustomOp, kernel: Implementation) -> Callable[..., Any]:
    if kernel.is_prepared:
        # The method, not the object: looking it up once saves a step at each call.
        call: Callable[..., Any] = kernel.target(op).__call__
        return call
    return with_extra(kernel.target, op.kernel_args(), op.num_args())


def _report(ops: Mapping[str, CustomOp]) -> BindReport:
    report = BindReport()
    inside = {
        id(part)
        for op in ops.values()
        if NATIVE not in op.assigned
        for child in op.children()
        for part in child.modules()
    }
    for op in ops.values():
        if id(op) not in inside:
            for name in op.assigned:
                report.count(op.key, name)
    return report
