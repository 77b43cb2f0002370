"""Give every op of a built model the implementations that the plan names; nothing is chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from dougong.contracts import ImplementationError, OpAssignment, PluginError
from dougong.contracts.rank_plan import NATIVE
from dougong.ops.assignments import PlannedPiece, resolve_assignments
from dougong.ops.custom_op import CustomOp
from dougong.ops.dispatch import BoundPiece, with_extra
from dougong.ops.failures import blames_implementation, reason_of
from dougong.ops.guard import Classified
from dougong.ops.implementation import Implementation
from dougong.ops.outline import checked_ops
from dougong.ops.registry import OpRegistry
from dougong.ops.sharing import note_sharers


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

    Each op's `CustomOp.post_load` is called first. Ops below one that was made of an out-of-tree
    class are that class's own: they run native unless the plan gives them something, and what the
    plan gives to ops that the class left out is ignored.

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
        PluginError: The plan does not fit what was built; every difference is listed. Or the
            ``post_load`` of a plugin's own op raised, or an op has another's key.
        DeviceError: The device failed, which is no implementation's fault.
    """
    ops = {prefix + path: op for path, op in checked_ops(module)}
    planned = resolve_assignments(ops, assignments, registry, prefix)
    for path, op in ops.items():
        op.path = path
        op.assigned = tuple(dict.fromkeys(piece.name for piece in planned[path]))
    note_sharers(module, ops)
    failed = _Failed()
    for path, op in ops.items():
        _post_load(op, planned[path], classified, failed)
    for path, op in ops.items():
        pieces = _made(op, planned[path], classified, failed)
        if not failed.reasons:
            op.bind_pieces(pieces)
    if failed.cause is not None:
        raise ImplementationError(failed.reasons) from failed.cause
    return _report(ops)


@dataclass(slots=True)
class _Failed:
    """Implementations that could not be made, and the first exception."""

    reasons: dict[str, str] = field(default_factory=dict)
    cause: Exception | None = None

    def add(self, name: str, reason: str, exc: Exception) -> None:
        self.reasons.setdefault(name, f"{reason}: {reason_of(exc)}")
        self.cause = self.cause or exc


def _post_load(
    op: CustomOp, pieces: Sequence[PlannedPiece], classified: Classified, failed: _Failed
) -> None:
    if type(op).post_load is CustomOp.post_load:
        return
    classes = (one for one in pieces if one.implementation and one.implementation.is_op_class)
    owner = next(classes, None)
    if owner is not None and owner.name in failed.reasons:
        return  # it would fail again
    try:
        with classified():
            op.post_load()
    except Exception as exc:
        if not blames_implementation(exc):
            raise
        where = f"post_load of op {op.key} at {op.path}"
        if owner is None:
            raise PluginError(f"{where} raised {reason_of(exc)}") from exc
        failed.add(owner.name, where, exc)


def _made(
    op: CustomOp, pieces: Sequence[PlannedPiece], classified: Classified, failed: _Failed
) -> list[BoundPiece]:
    """The op's implementations, but for those that failed."""
    made = []
    for piece in pieces:
        if piece.name in failed.reasons:
            continue  # it would fail again
        try:
            with classified():
                call = _callable_for(op, piece)
        except Exception as exc:
            if not blames_implementation(exc):
                raise
            failed.add(piece.name, f"making it for op {op.key} at {op.path}", exc)
        else:
            mutates = piece.implementation.mutates if piece.implementation else ()
            made.append(BoundPiece(piece.name, call, piece.up_to, mutates))
    return made


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
