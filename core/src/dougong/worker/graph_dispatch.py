"""Which graph a step takes: decided on the host from three numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dougong.contracts import GraphAssignment, GraphLevel


@dataclass(frozen=True, slots=True)
class StepGraph:
    """One captured step.

    Attributes:
        kind: ``DECODE``: whole, one token per sequence; ``FULL``: whole, any lengths;
            ``PIECEWISE``: all but attention.
        num_tokens: Rows, padding included.
        num_seqs: Sequences of a whole step, padding included; 0: attention has the step's own.
    """

    kind: GraphLevel
    num_tokens: int
    num_seqs: int

    @property
    def is_whole(self) -> bool:
        """Attention is in it."""
        return self.kind is not GraphLevel.PIECEWISE

    def __str__(self) -> str:
        return f"{self.kind.value} {self.num_tokens}"


def graphs_of(assignment: GraphAssignment, max_num_seqs: int) -> tuple[StepGraph, ...]:
    """All that is to be captured; what is worth most comes first: whole decode steps before others,
    and of each kind the smallest."""
    kinds = (
        (GraphLevel.DECODE, assignment.decode),
        (GraphLevel.FULL, assignment.full),
        (GraphLevel.PIECEWISE, assignment.piecewise),
    )
    return tuple(
        StepGraph(kind, size, 0 if kind is GraphLevel.PIECEWISE else min(size, max_num_seqs))
        for kind, sizes in kinds
        for size in sizes
    )


@dataclass(slots=True)
class GraphCounters:
    """Steps so far.

    Attributes:
        hits: Steps by graph.
        num_padding_tokens: Rows of padding in them.
        num_eager_steps: Steps above the largest size.
    """

    hits: dict[StepGraph, int] = field(default_factory=dict)
    num_padding_tokens: int = 0
    num_eager_steps: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain data; hits by a graph's name."""
        return {
            "hits": {str(graph): count for graph, count in self.hits.items()},
            "num_padding_tokens": self.num_padding_tokens,
            "num_eager_steps": self.num_eager_steps,
        }


class GraphDispatch:
    """Chooses among captured graphs, and counts.

    Args:
        graphs: Those that are captured; of each kind, the next larger size serves a step.

    Attributes:
        graphs: The same, in the order given.
        counters: Of the steps so far.
    """

    def __init__(self, graphs: Sequence[StepGraph]) -> None:
        self.graphs = tuple(graphs)
        self._decode = _by_count(graphs, GraphLevel.DECODE)
        self._other = _by_count(graphs, GraphLevel.PIECEWISE, GraphLevel.FULL)
        self.reset_counters()

    def reset_counters(self) -> None:
        """Count anew."""
        self.counters = GraphCounters(hits=dict.fromkeys(self.graphs, 0))

    def choose(self, num_seqs: int, num_tokens: int, max_query_len: int) -> StepGraph | None:
        """The graph of a step of so many sequences and tokens; ``None``: it runs eagerly."""
        counters = self.counters
        if max_query_len == 1 and num_seqs in self._decode:
            graph = self._decode[num_seqs]
        elif num_tokens in self._other:
            graph = self._other[num_tokens]
        else:
            counters.num_eager_steps += 1
            return None
        counters.hits[graph] += 1
        counters.num_padding_tokens += graph.num_tokens - num_tokens
        return graph


def _by_count(graphs: Sequence[StepGraph], *kinds: GraphLevel) -> Mapping[int, StepGraph]:
    """Count → the smallest graph that holds as many, for every count up to the largest."""
    found: dict[int, StepGraph] = {}
    for graph in sorted(graphs, key=lambda one: one.num_tokens):
        if graph.kind in kinds:
            for count in range(len(found) + 1, graph.num_tokens + 1):
                found[count] = graph
    return found
