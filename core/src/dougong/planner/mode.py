"""Eager, or how much of a step is captured: as much as device and attention both allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from dougong.contracts import GraphLevel, GraphSupport
from dougong.planner.attention import ChosenAttention
from dougong.planner.attention_candidates import request_of
from dougong.planner.execution_plan import ExecutionMode, FallbackLevel
from dougong.planner.findings import Findings
from dougong.planner.inputs import PlanInputs

EAGER = "eager"
_LEVELS = tuple(GraphLevel)
"""From the least that is captured to the most."""


def plan_mode(
    inputs: PlanInputs, chosen: ChosenAttention | None, findings: Findings
) -> ExecutionMode:
    """The highest legal level; one below what is claimed is a fallback.

    Raises:
        PluginError: A backend raised when it was asked.
    """
    claimed = _claimed_level(inputs)
    if inputs.config.compute.enforce_eager:
        return ExecutionMode(EAGER, "enforce_eager is set")
    if claimed is GraphLevel.NONE:
        return ExecutionMode(EAGER, "this device claims no graph capture")
    bounds = tuple(_bounds(inputs, chosen))
    level = min((claimed, *(bound for _, bound in bounds)), key=_LEVELS.index)
    if level is claimed:
        return ExecutionMode(level.value, "claimed by the device, and its attention allows it")
    reason = "; ".join(dict.fromkeys(why for why, bound in bounds if bound is level))
    hint = "every launch costs time on the host" if level is GraphLevel.NONE else ""
    findings.fall_back(
        FallbackLevel.PATH,
        "graph capture",
        f"{claimed.value} is claimed, and {_named(level)} runs: {reason}; --enforce-eager accepts "
        "a start without graphs",
        hint,
    )
    return ExecutionMode(_named(level), reason)


def captures_attention(mode: ExecutionMode) -> bool:
    """Whether attention runs inside captured graphs."""
    return mode.name in (GraphLevel.DECODE, GraphLevel.FULL)


def _named(level: GraphLevel) -> str:
    return EAGER if level is GraphLevel.NONE else level.value


def _claimed_level(inputs: PlanInputs) -> GraphLevel:
    if not inputs.capabilities.claims.graph_capture:
        return GraphLevel.NONE
    graph = inputs.candidates.graph
    is_said = graph is not None and graph.level is not GraphLevel.NONE
    return graph.level if graph is not None and is_said else GraphLevel.PIECEWISE


def _bounds(inputs: PlanInputs, chosen: ChosenAttention | None) -> Iterator[tuple[str, GraphLevel]]:
    """Each reason with the level it leaves."""
    graph = inputs.candidates.graph
    if graph is None or graph.level is GraphLevel.NONE:
        yield "nothing here captures and replays graphs", GraphLevel.NONE
        return
    supports: dict[str, GraphSupport] = {"the device": graph}
    if chosen is not None:
        for name in dict.fromkeys(name for pick in chosen.picks for name in pick.names):
            support = chosen.judge.queries.graph_support(name)
            supports[f"attention backend {name}"] = support
            yield f"attention backend {name} allows {support.level.value}", support.level
        yield from _captured_attention(chosen)
    yield from _size_bounds(supports, inputs.config.scheduler.max_num_batched_tokens)


def _captured_attention(chosen: ChosenAttention) -> Iterator[tuple[str, GraphLevel]]:
    """Layers that a backend serves, but not inside a graph: everything else may be captured."""
    for need, pick in zip(chosen.needs, chosen.picks, strict=True):
        for phase, name in pick.by_phase.items():
            request = replace(request_of(need, chosen.terms, phase), needs_graph=True)
            if not (answer := chosen.judge.queries.supports(name, request)):
                why = f"attention backend {name} inside a graph: {answer.reason}"
                yield why, GraphLevel.PIECEWISE


def _size_bounds(
    supports: Mapping[str, GraphSupport], max_num_tokens: int
) -> Iterator[tuple[str, GraphLevel]]:
    """Token counts that all of them capture; none: no graph is ever used."""
    common: set[int] | None = None
    for whose, support in supports.items():
        if support.max_graphs is not None and support.max_graphs < 1:
            yield f"{whose} allows {support.max_graphs} graphs", GraphLevel.NONE
        if support.sizes:
            common = set(support.sizes) if common is None else common & set(support.sizes)
    if common is not None and not any(size <= max_num_tokens for size in common):
        stated = "; ".join(
            f"{whose} {', '.join(map(str, support.sizes))}"
            for whose, support in supports.items()
            if support.sizes
        )
        yield (
            f"no token count up to {max_num_tokens} can be captured: {stated}",
            GraphLevel.NONE,
        )
