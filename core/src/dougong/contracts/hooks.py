"""The 1:N extension points, carried by pluggy. A plugin's hooks module implements any of them.

Mark an implementation with `hookimpl`. At load every hook is validated: an unknown name or an
argument
the specification does not have is refused. Choosing a platform is 1-of-N and no hook.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pluggy

HOOK_PROJECT = "dougong"

hookspec = pluggy.HookspecMarker(HOOK_PROJECT)
hookimpl = pluggy.HookimplMarker(HOOK_PROJECT)


@dataclass(frozen=True, slots=True)
class ModelRegistration:
    """One architecture a plugin adds, replaces or renames.

    Attributes:
        architecture: As the checkpoint's ``architectures`` names it.
        target: Import string ``"package.module:Class"``; loaded when the model is built.
        alias_of: Instead of ``target``: an architecture that this one equals.
    """

    architecture: str
    target: str | None = None
    alias_of: str | None = None


@dataclass(frozen=True, slots=True)
class StepStats:
    """Counts of one finished step."""

    step_id: int
    num_running: int
    num_waiting: int
    num_prefill_tokens: int
    num_decode_tokens: int
    seconds: float


class HookSpecs:
    """Every hook, with its arguments."""

    @hookspec
    def dougong_register_ops(self) -> Iterable[Any]:  # type: ignore[empty-body]
        """Modules or objects that carry ``register_kernel`` / ``register_oot`` marks.

        The hooks module itself is always looked through and need not be named.
        """

    @hookspec
    def dougong_register_models(self) -> Iterable[ModelRegistration]:  # type: ignore[empty-body]
        """Architectures to add, override or alias; each is logged."""

    @hookspec
    def dougong_register_quantization(self) -> Iterable[Any]:  # type: ignore[empty-body]
        """Marked weight formats."""

    @hookspec
    def dougong_process_start(self, role: str, rank: int | None) -> None:
        """This process begins: ``role`` is ``"front"``, ``"engine"`` or ``"worker"``."""

    @hookspec
    def dougong_engine_ready(self, status: Mapping[str, Any]) -> None:
        """Warm-up is over; ``status`` is what the status output shows."""

    @hookspec
    def dougong_step_done(self, stats: StepStats) -> None:
        """After each step; called only if somebody implements it."""
