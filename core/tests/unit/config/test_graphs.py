"""Options for captured steps: read, bounded, held against each other."""

from __future__ import annotations

from typing import Any

import pytest

from dougong.config import EngineArgs, GraphConfig
from dougong.config.graphs import parse_sizes, resolve_graphs
from dougong.config.same_choice import is_same_choice
from dougong.config.wishes import Wishes
from dougong.contracts.graph import GraphLevel

BUDGET = 10_000


def resolved(*, enforce_eager: bool = False, **options: Any) -> tuple[GraphConfig, Wishes]:
    wishes = Wishes.of_user(EngineArgs(model="m", **options))
    graphs = resolve_graphs(
        wishes, enforce_eager=enforce_eager, budget_bytes=BUDGET, max_num_tokens=64
    )
    return graphs, wishes


def test_without_options_all_is_left_to_the_planner_and_memory_is_a_twentieth() -> None:
    graphs, wishes = resolved()
    assert graphs == GraphConfig(level=None, sizes=(), memory_bytes=500)
    assert wishes.problems == []
    told = {one.field: one for one in wishes.decisions}
    assert set(told) == {"graph_level", "graph_sizes", "graph_memory_bytes"}
    assert all(one.is_default for one in told.values())


def test_what_was_asked_for_is_taken() -> None:
    graphs, wishes = resolved(graph_level="decode", graph_sizes="8, 1,64", graph_memory_bytes=7)
    assert graphs == GraphConfig(level=GraphLevel.DECODE, sizes=(1, 8, 64), memory_bytes=7)
    assert wishes.problems == []
    assert {one.author for one in wishes.decisions} == {"user"}


@pytest.mark.parametrize("text", ["", "1,,2", "0", "-1", "1.5", "a", "1 2", "2,2", "²", "1,"])
def test_what_is_no_list_of_counts_is_refused(text: str) -> None:
    assert parse_sizes(text) is None
    if text:
        graphs, wishes = resolved(graph_sizes=text)
        assert graphs.sizes == ()
        assert wishes.problems[0].startswith(f"graph_sizes={text} is no list of token counts")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"graph_sizes": "8,65"}, "no step has 65 tokens, since max_num_batched_tokens is 64"),
        ({"graph_level": "most"}, "graph_level=most is none of none, piecewise, decode, full"),
        ({"graph_level": "full", "enforce_eager": True}, "enforce_eager allows no graph"),
        ({"graph_sizes": "8", "enforce_eager": True}, "enforce_eager allows no graph"),
        ({"graph_sizes": "8", "graph_level": "none"}, "graph_level=none allows no graph"),
        ({"graph_memory_bytes": 9, "enforce_eager": True}, "graph_memory_bytes=9 was asked for"),
    ],
)
def test_what_cannot_be_is_refused_and_planning_goes_on_without_it(
    options: dict[str, Any], told: str
) -> None:
    graphs, wishes = resolved(**options)
    (problem,) = wishes.problems
    assert told in problem
    assert graphs.sizes == ()
    assert graphs.level in (None, GraphLevel.NONE)


def test_no_graphs_at_all_may_be_said_twice() -> None:
    graphs, wishes = resolved(enforce_eager=True, graph_level="none")
    assert (graphs.level, wishes.problems) == (GraphLevel.NONE, [])


def test_sizes_are_the_same_however_they_are_written() -> None:
    assert is_same_choice("graph_sizes", "1,8", "8, 1")
    assert not is_same_choice("graph_sizes", "1,8", "1,16")
    assert not is_same_choice("graph_sizes", "1,8", "1,x")
