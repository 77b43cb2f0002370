"""How much of a step is captured: as much as device and attention both allow."""

from __future__ import annotations

from dataclasses import replace

from dougong.contracts import GraphAssignment, GraphLevel
from dougong.planner.attention import ChosenAttention
from dougong.planner.execution_plan import ExecutionMode, FallbackLevel
from dougong.planner.findings import Findings
from dougong.planner.graph_bounds import graph_bounds, graph_limits
from dougong.planner.graph_sizes import LARGEST, GraphLimits, asked_sizes, choose_sizes
from dougong.planner.inputs import PlanInputs

NO_CAPTURE = GraphLevel.NONE.value
GRAPH_CAPTURE = "graph capture"
"""How a capture that failed is named among implementations that did."""

_LEVELS = tuple(GraphLevel)
"""From the least that is captured to the most."""


def plan_mode(
    inputs: PlanInputs, chosen: ChosenAttention | None, findings: Findings
) -> ExecutionMode:
    """The highest legal level, or the one that was asked for; below what is claimed it is a
    fallback, unless it was asked for.

    Raises:
        PluginError: A backend raised when it was asked.
    """
    asked = inputs.config.graphs
    if inputs.config.compute.enforce_eager:
        return ExecutionMode(NO_CAPTURE, "enforce_eager is set")
    if asked.level is GraphLevel.NONE:
        return ExecutionMode(NO_CAPTURE, "graph_level=none was asked for")
    if inputs.config.pooling is not None:
        return _eager_pooling(asked.level, findings, has_sizes=bool(asked.sizes))
    claimed = _claimed_level(inputs)
    level, why = _most_legal(claimed, inputs, chosen)
    if (asked.level or asked.sizes) and _is_above(asked.level or GraphLevel.PIECEWISE, level):
        is_claim = level is claimed and level is not GraphLevel.NONE
        _refuse(asked.level, level, "the device claims no more" if is_claim else why, findings)
        return ExecutionMode(NO_CAPTURE, why)
    if asked.level is not None:
        level, why = asked.level, f"graph_level={asked.level.value} was asked for"
    elif level is not claimed:
        _note_fallback(claimed, level, why, findings)
    if level is GraphLevel.NONE:
        return ExecutionMode(NO_CAPTURE, why)
    return ExecutionMode(level.value, why, _assignment(level, inputs, chosen, findings))


def captures_attention(mode: ExecutionMode) -> bool:
    """Whether attention runs inside captured graphs."""
    return mode.name in (GraphLevel.DECODE, GraphLevel.FULL)


def _eager_pooling(
    asked: GraphLevel | None, findings: Findings, *, has_sizes: bool
) -> ExecutionMode:
    """Vectors are made of whole prompts, of as many lengths as there are texts."""
    why = "a model that makes vectors has no decode steps to capture"
    if asked is not None or has_sizes:
        _refuse(asked, GraphLevel.NONE, why, findings)
    return ExecutionMode(NO_CAPTURE, why)


def _claimed_level(inputs: PlanInputs) -> GraphLevel:
    if not inputs.capabilities.claims.graph_capture:
        return GraphLevel.NONE
    graph = inputs.candidates.graph
    is_said = graph is not None and graph.level is not GraphLevel.NONE
    return graph.level if graph is not None and is_said else GraphLevel.PIECEWISE


def _most_legal(
    claimed: GraphLevel, inputs: PlanInputs, chosen: ChosenAttention | None
) -> tuple[GraphLevel, str]:
    """With the reason why not more, or why so much."""
    if claimed is GraphLevel.NONE:
        return claimed, "this device claims no graph capture"
    bounds = tuple(graph_bounds(inputs, chosen))
    level = min((claimed, *(bound.level for bound in bounds)), key=_LEVELS.index)
    limits = graph_limits(inputs, chosen)
    is_sized = inputs.config.graphs.sizes and not _has_too_many_pieces(limits)
    if level is not GraphLevel.NONE and not (is_sized or choose_sizes(level, limits)):
        return GraphLevel.NONE, _why_no_size(limits)
    if level is claimed:
        return level, "claimed by the device, and its attention allows it"
    reasons = dict.fromkeys(bound.reason for bound in bounds if bound.level is level)
    return level, "; ".join(reasons)


def _has_too_many_pieces(limits: GraphLimits) -> bool:
    return limits.max_graphs is not None and limits.max_graphs < limits.num_pieces


def _why_no_size(limits: GraphLimits) -> str:
    if _has_too_many_pieces(limits):
        return (
            f"the device allows {limits.max_graphs} graphs, and one step in pieces has "
            f"{limits.num_pieces}"
        )
    return (
        f"no token count up to {LARGEST} can be captured, and a larger one is only where "
        "--graph-sizes names it"
    )


def _refuse(asked: GraphLevel | None, most: GraphLevel, why: str, findings: Findings) -> None:
    option = "graph_sizes" if asked is None else f"graph_level={asked.value}"
    findings.refuse(
        f"{option} was asked for, and no more than {_named(most)} is possible: {why}. Leave the "
        "option out, or ask for less."
    )


def _is_above(level: GraphLevel, other: GraphLevel) -> bool:
    return _LEVELS.index(level) > _LEVELS.index(other)


def _note_fallback(claimed: GraphLevel, level: GraphLevel, why: str, findings: Findings) -> None:
    findings.fall_back(
        FallbackLevel.PATH,
        GRAPH_CAPTURE,
        f"{claimed.value} is claimed, and {_named(level)} runs: {why}; --enforce-eager accepts a "
        "start without graphs",
        "every launch costs time on the host" if level is GraphLevel.NONE else "",
    )


def _assignment(
    level: GraphLevel,
    inputs: PlanInputs,
    chosen: ChosenAttention | None,
    findings: Findings,
) -> GraphAssignment:
    asked, limits = inputs.config.graphs, graph_limits(inputs, chosen)
    if asked.sizes:
        made, problems = asked_sizes(level, asked.sizes, limits)
        listed = ",".join(map(str, asked.sizes))
        for problem in problems:
            findings.refuse(f"graph_sizes={listed} was asked for: {problem}.")
    else:
        made = choose_sizes(level, limits)
        if not made:
            _refuse(level, GraphLevel.NONE, _why_no_size(limits), findings)
    return replace(made, max_bytes=asked.memory_bytes)


def _named(level: GraphLevel) -> str:
    return "eager" if level is GraphLevel.NONE else level.value
