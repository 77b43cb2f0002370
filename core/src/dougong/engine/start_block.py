"""What the log shows of a start: one block of at most a dozen lines, whatever there is to tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dougong.config import Decision
from dougong.config.decision import CHECKPOINT, CORE
from dougong.contracts.rank_plan import NATIVE
from dougong.engine.fallback_warnings import missing_library
from dougong.planner import ExecutionPlan

if TYPE_CHECKING:
    from dougong.engine.start_report import StartReport

MAX_LINES = 12
WHERE = "`dougong explain`"
_GIB = 1024**3
_MOST_NAMES = 4


def start_block(report: StartReport) -> list[str]:
    """The lines, none of them with a line break.

    Decisions that the core takes everywhere are left out. What somebody asked for comes first; what
    finds no room for its reason is named without it. Fallbacks are counted here and logged as
    warnings, each with its reason, so that no quieter log hides one.
    """
    plan = report.plan
    head = [_headline(report)]
    if report.platform_reasons:
        head.append("; ".join(report.platform_reasons))
    if report.conformance:
        head.append(report.conformance)
    tail = [
        _runs(plan),
        *([report.graphs.line()] if report.graphs else ()),
        *_weights(plan),
        *_left_over(plan),
        *_plugins(report.plugin_faults),
        _memory(report),
        _took(report.seconds),
    ]
    room = MAX_LINES - len(head) - len(tail)
    lines = [*head, *_decisions(report.decisions, room), *tail]
    first, *others = (" ".join(line.split()) for line in lines)
    return [first, *(f"  {line}" for line in others)]


def _headline(report: StartReport) -> str:
    devices = ", ".join(report.devices) or "no device named"
    return (
        f"{report.model} ({report.architecture}, {report.dtype}) on platform {report.platform}: "
        f"{devices}"
    )


def _decisions(decisions: Sequence[Decision], room: int) -> list[str]:
    told = sorted(
        (one for one in decisions if not one.is_default),
        key=lambda one: one.author in (CORE, CHECKPOINT),
    )
    if len(told) <= room:
        return [str(one) for one in told]
    shown, rest = told[: room - 1], told[room - 1 :]
    named = ", ".join(f"{one.field} = {one.value}" for one in rest)
    return [*map(str, shown), f"and {named} (why: {WHERE})"]


def _runs(plan: ExecutionPlan) -> str:
    cache = plan.kv_cache
    counts = [f"{name} x {count}" for name, count in plan.attention_backends().items()]
    attention = "attention: none over a KV cache"
    if counts:
        attention = (
            f"attention: {', '.join(counts)}, KV blocks of {cache.block_size} in {cache.dtype}"
        )
    return f"{attention}; ops: {_ops(plan.implementations())}; {_way(plan)}"


def _way(plan: ExecutionPlan) -> str:
    """How steps run, and why no more of them is captured."""
    mode = plan.mode
    return f"execution: {plan.execution.name}, captured: {mode.name} ({mode.reason})"


def _ops(implementations: Mapping[str, Mapping[str, int]]) -> str:
    """Ops by the family of what they run: the part of its name before the slash."""
    by_family: dict[str, list[str]] = {}
    for op, bound in implementations.items():
        families = dict.fromkeys(_family(name) for name in bound)
        by_family.setdefault(" and ".join(families), []).append(op)
    if len(by_family) == 1:
        (family,) = by_family
        return f"all {len(implementations)} kinds run {family}"
    parts = (f"{_named(ops)} run {family}" for family, ops in by_family.items())
    return ", ".join(parts) or "none"


def _family(implementation: str) -> str:
    family = implementation.partition("/")[0]
    return "plain torch" if family == NATIVE else family


def _weights(plan: ExecutionPlan) -> Iterator[str]:
    """Formats that are not computed as they are stored."""
    changed = [f"{one.format} {one.where}" for one in plan.weights if one.reason]
    if changed:
        yield f"weights: {_named(changed)}"


def _left_over(plan: ExecutionPlan) -> Iterator[str]:
    parts = []
    if count := len(plan.fallbacks):
        word = "fallback" if count == 1 else "fallbacks"
        subjects = _named(list(dict.fromkeys(one.subject for one in plan.fallbacks)))
        parts.append(f"{count} {word}: {subjects} (warned of; costs and reasons: {WHERE})")
    useless = [one.name for one in plan.unmatched if not missing_library(one.reason, plan)]
    if useless:
        parts.append(f"registered, but of no use to this model: {_named(useless)} (why: {WHERE})")
    if parts:
        yield "; ".join(parts)


def _plugins(faults: Sequence[str]) -> Iterator[str]:
    if faults:
        more = f"; and {len(faults) - 1} more (`dougong doctor`)" if len(faults) > 1 else ""
        yield f"plugin at fault: {faults[0]}{more}"


def _memory(report: StartReport) -> str:
    memory = report.memory
    if not report.num_kv_blocks:
        return f"memory: {_gib(memory.weights)} weights of {_gib(memory.budget)}; no KV cache"
    return (
        f"memory: {_gib(memory.weights)} weights and {_gib(memory.kv_cache)} KV cache of "
        f"{_gib(memory.budget)}; room for {report.limits.num_token_slots} tokens in "
        f"{report.num_kv_blocks} blocks of {report.block_size}"
    )


def _took(seconds: Mapping[str, float]) -> str:
    parts = ", ".join(f"{name} {value:.1f}" for name, value in seconds.items())
    return f"ready after {sum(seconds.values()):.1f} s ({parts})"


def _named(names: Sequence[str]) -> str:
    """Some names; how many more where there are too many for a line."""
    more = len(names) - _MOST_NAMES
    shown = ", ".join(names[:_MOST_NAMES])
    return f"{shown} and {more} more" if more > 0 else shown


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / _GIB:.2f} GiB"
