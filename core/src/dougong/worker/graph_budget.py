"""Which graphs fit: a few are measured, the others lie between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dougong.worker.graph_dispatch import StepGraph


def measured_graphs(graphs: Sequence[StepGraph]) -> tuple[StepGraph, ...]:
    """The largest and the smallest of each kind, the largest first, since what it frees serves the
    smaller ones."""
    found: list[StepGraph] = []
    for kind in dict.fromkeys(graph.kind for graph in graphs):
        own = sorted((one for one in graphs if one.kind is kind), key=lambda one: one.num_tokens)
        found += dict.fromkeys((own[-1], own[0]))
    return tuple(found)


def estimate_bytes(
    graphs: Sequence[StepGraph], measured: Mapping[StepGraph, int]
) -> dict[StepGraph, int]:
    """What each graph takes: as measured, else on the line through its kind's measured ones."""
    return {graph: _estimate(graph, measured) for graph in graphs}


def fitting_graphs(
    graphs: Sequence[StepGraph], num_bytes: Mapping[StepGraph, int], max_bytes: int
) -> tuple[StepGraph, ...]:
    """Those that fit together; an earlier one goes before a later one.

    Args:
        graphs: What is worth most comes first.
        num_bytes: Of each.
        max_bytes: Of all together.
    """
    kept, left = [], max_bytes
    for graph in graphs:
        if num_bytes[graph] <= left:
            kept.append(graph)
            left -= num_bytes[graph]
    return tuple(kept)


def _estimate(graph: StepGraph, measured: Mapping[StepGraph, int]) -> int:
    if graph in measured:
        return measured[graph]
    own = [one for one in measured if one.kind is graph.kind]
    low, high = (choose(own, key=lambda one: one.num_tokens) for choose in (min, max))
    rise = max(0, measured[high] - measured[low])
    steps, width = graph.num_tokens - low.num_tokens, high.num_tokens - low.num_tokens
    return measured[low] + -(-rise * steps // width)
