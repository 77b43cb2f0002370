"""Choose an implementation for every op of a built model, once, and keep every reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from dougong.contracts import UnsupportedError
from dougong.ops.conditions import BindRequest
from dougong.ops.custom_op import NATIVE, CustomOp
from dougong.ops.registry import Kernel, OpRegistry


@dataclass(slots=True)
class BindReport:
    """What was bound.

    Attributes:
        implementations: Op key → implementation → number of ops.
        passed_over: Op key → implementation → the first reason it was not used.
    """

    implementations: dict[str, dict[str, int]] = field(default_factory=dict)
    passed_over: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, other: BindReport) -> None:
        """Take in the report of another part of the model."""
        for key, by_name in other.implementations.items():
            for name, count in by_name.items():
                self.count(key, name, count)
        for key, reasons in other.passed_over.items():
            self.passed_over.setdefault(key, {}).update(reasons)

    def notes(self) -> Iterator[str]:
        """One sentence per reason, with every implementation that was passed over for it."""
        by_reason: dict[str, list[str]] = {}
        for key, reasons in self.passed_over.items():
            for name, reason in reasons.items():
                by_reason.setdefault(reason, []).append(f"{name} (op {key})")
        for reason, names in by_reason.items():
            yield f"passed over: {', '.join(names)}: {reason}"

    def count(self, key: str, name: str, more: int = 1) -> None:
        """``more`` ops of ``key`` run ``name``."""
        by_name = self.implementations.setdefault(key, {})
        by_name[name] = by_name.get(name, 0) + more


def bind_ops(model: nn.Module, registry: OpRegistry, request: BindRequest) -> BindReport:
    """Bind every `CustomOp` under ``model``, after its weights are loaded.

    Order per op: registered kernels by priority, then native. What does not run, because a fused
    slot does its work, is not counted.
    """
    report = BindReport()
    ops = [module for module in model.modules() if isinstance(module, CustomOp)]
    for op in ops:
        _bind_one(op, registry, request, report)
    inside = {id(part) for op in ops if op.implementation != NATIVE for part in _parts(op)}
    for op in ops:  # at the end: a tied head may have bound its embedding anew
        if id(op) not in inside:
            report.count(op.key, op.implementation)
    return report


def _parts(op: CustomOp) -> list[nn.Module]:
    """Ops a fused slot is made of; they do not run while the slot has a kernel of its own."""
    return [module for child in op.children() for module in child.modules()]


def _bind_one(op: CustomOp, registry: OpRegistry, request: BindRequest, report: BindReport) -> None:
    for kernel in registry.candidates(op.key):
        verdict = kernel.when.check(request)
        reason = verdict.reason
        if verdict:
            try:
                op.bind(kernel.name, _callable_for(kernel, op))
                return
            except UnsupportedError as exc:
                reason = str(exc)
        report.passed_over.setdefault(op.key, {}).setdefault(kernel.name, reason)
    op.bind(NATIVE, op.forward_native)


def _callable_for(kernel: Kernel, op: CustomOp) -> Callable[..., Any]:
    if kernel.is_prepared:
        return kernel.target(op)  # type: ignore[no-any-return]
    extra, function = op.kernel_args(), kernel.target
    return lambda *args: function(*args, *extra)
