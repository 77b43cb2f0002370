"""What bounds the capture of steps: the device, attention, counts and sizes of graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dougong.contracts import GraphLevel, GraphSupport
from dougong.planner.attention import ChosenAttention
from dougong.planner.attention_candidates import request_of
from dougong.planner.graph_sizes import GraphLimits
from dougong.planner.inputs import PlanInputs

_DEVICE = "the device"


@dataclass(frozen=True, slots=True)
class LevelBound:
    """A reason, and the most that it leaves to be captured."""

    reason: str
    level: GraphLevel


def graph_bounds(inputs: PlanInputs, chosen: ChosenAttention | None) -> Iterator[LevelBound]:
    """Everything that keeps something from being captured.

    Raises:
        PluginError: A backend raised when it was asked.
    """
    graph = inputs.candidates.graph
    if inputs.candidates.failed_capture:
        failed = f"it failed at its first use: {inputs.candidates.failed_capture}"
        yield LevelBound(failed, GraphLevel.NONE)
        return
    if graph is None or graph.level is GraphLevel.NONE:
        yield LevelBound("nothing here captures and replays graphs", GraphLevel.NONE)
        return
    for whose, support in _attention_supports(chosen).items():
        yield LevelBound(f"{whose} allows {support.level.value}", support.level)
    if chosen is not None:
        yield from _captured_attention(chosen)
    yield from _size_bounds(inputs, chosen)


def graph_limits(inputs: PlanInputs, chosen: ChosenAttention | None) -> GraphLimits:
    """What bounds sizes and number of graphs.

    Raises:
        PluginError: A backend raised when it was asked.
    """
    graph = inputs.candidates.graph or GraphSupport()
    attention = _attention_supports(chosen).values()
    counts = [one.max_graphs for one in attention if one.max_graphs is not None]
    needs = () if chosen is None else chosen.needs
    scheduler = inputs.config.scheduler
    return GraphLimits(
        max_num_seqs=scheduler.max_num_seqs,
        max_num_tokens=scheduler.max_num_batched_tokens,
        num_pieces=1 + sum(len(need.layer_indices) for need in needs),
        max_graphs=graph.max_graphs,
        max_whole_graphs=min(counts, default=None),
        sizes=graph.sizes,
        whole_sizes=_common_sizes((graph, *attention)),
    )


def _attention_supports(chosen: ChosenAttention | None) -> dict[str, GraphSupport]:
    if chosen is None:
        return {}
    return {
        f"attention backend {name}": chosen.judge.queries.graph_support(name)
        for name in dict.fromkeys(name for pick in chosen.picks for name in pick.names)
    }


def _captured_attention(chosen: ChosenAttention) -> Iterator[LevelBound]:
    """Layers that cannot be inside a graph: everything else may be captured."""
    for need, pick in zip(chosen.needs, chosen.picks, strict=True):
        if pick.decode is not None:
            names = " and ".join(pick.names)
            why = f"attention backends {names} share each step, which is split on the host"
            yield LevelBound(why, GraphLevel.PIECEWISE)
        for phase, name in pick.by_phase.items():
            request = replace(request_of(need, chosen.terms, phase), needs_graph=True)
            if not (answer := chosen.judge.queries.supports(name, request)):
                why = f"attention backend {name} inside a graph: {answer.reason}"
                yield LevelBound(why, GraphLevel.PIECEWISE)


def _size_bounds(inputs: PlanInputs, chosen: ChosenAttention | None) -> Iterator[LevelBound]:
    """Counts and sizes that leave no graph at all of some kind."""
    limits = graph_limits(inputs, chosen)
    graph = inputs.candidates.graph or GraphSupport()
    attention = _attention_supports(chosen)
    for whose, support in {_DEVICE: graph, **attention}.items():
        if support.max_graphs is not None and support.max_graphs < 1:
            level = GraphLevel.NONE if whose == _DEVICE else GraphLevel.PIECEWISE
            yield LevelBound(f"{whose} allows {support.max_graphs} graphs", level)
    if limits.sizes and not any(size <= limits.max_num_tokens for size in limits.sizes):
        why = f"no token count up to {limits.max_num_tokens} can be captured"
        yield LevelBound(f"{why}: {_stated({_DEVICE: graph})}", GraphLevel.NONE)
    whole = limits.whole_sizes
    if whole is not None and not any(size <= limits.max_num_seqs for size in whole):
        why = f"no decode step of up to {limits.max_num_seqs} sequences can be captured"
        told = _stated({_DEVICE: graph, **attention})
        yield LevelBound(f"{why}: {told}", GraphLevel.PIECEWISE)


def _common_sizes(supports: tuple[GraphSupport, ...]) -> tuple[int, ...] | None:
    """Those that all of them state; ``None``: nobody states any."""
    stated = [set(support.sizes) for support in supports if support.sizes]
    return tuple(sorted(set.intersection(*stated))) if stated else None


def _stated(supports: Mapping[str, GraphSupport]) -> str:
    return "; ".join(
        f"{whose} {', '.join(map(str, support.sizes))}"
        for whose, support in supports.items()
        if support.sizes
    )
