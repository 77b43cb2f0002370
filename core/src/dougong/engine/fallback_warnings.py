"""Fallbacks as sentences for the log: each is named once, one sentence per cause."""

from __future__ import annotations

from collections.abc import Sequence

from dougong.planner import ExecutionPlan, Fallback


def fallback_warnings(plan: ExecutionPlan) -> tuple[str, ...]:
    """What the log shows of a plan's fallbacks.

    A kernel library that is missing usually takes many ops with it; its reason is told once, with
    everything that fell back for it.
    """
    told: dict[str, list[Fallback]] = {}
    for one in dict.fromkeys(plan.fallbacks):
        told.setdefault(missing_library(one.reason, plan) or str(one), []).append(one)
    return tuple(
        _sentence(cause, together) if len(together) > 1 else str(together[0])
        for cause, together in told.items()
    )


def missing_library(reason: str, plan: ExecutionPlan) -> str:
    """The library that a reason speaks of, with why it is not there; empty: none."""
    told = (f"{library}: {why}" for library, why in plan.kernels_missing.items())
    return next((one for one in told if one in reason), "")


def _sentence(cause: str, together: Sequence[Fallback]) -> str:
    level = " and ".join(dict.fromkeys(str(one.level) for one in together))
    subjects = (
        f"{one.subject} ({one.cost_hint})" if one.cost_hint else one.subject for one in together
    )
    return f"{level} fallback: {', '.join(subjects)}: {cause}"
