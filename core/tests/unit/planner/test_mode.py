from __future__ import annotations

from typing import Any

import pytest

from dougong.contracts import AttentionLimits, GraphLevel, GraphSupport, PluginError
from dougong.planner import ExecutionPlan, FallbackLevel, plan
from tests.unit.planner.paper import PaperBackend, named, paper_inputs

CAPTURED = AttentionLimits(dtypes=frozenset({"bfloat16"}), graph=True)
FULL = GraphSupport(GraphLevel.FULL)


def planned(
    graph: GraphSupport | None = FULL,
    backend: PaperBackend | None = None,
    is_claimed: bool = True,
    **config: Any,
) -> ExecutionPlan:
    backend = backend or PaperBackend("paper/fast", CAPTURED, graph=FULL)
    return plan(
        paper_inputs(
            config=config,
            claims={"graph_capture": is_claimed},
            candidates={"attention": named(backend), "graph": graph},
        )
    )


def test_as_much_is_captured_as_device_and_attention_allow() -> None:
    made = planned()
    assert made.mode.name == "full"
    assert made.attention[0].assignment.request.needs_graph
    assert made.fallbacks == ()


def test_nothing_is_captured_where_nothing_is_claimed_and_that_is_no_fallback() -> None:
    made = planned(graph=None, is_claimed=False)
    assert (made.mode.name, made.fallbacks) == ("eager", ())
    assert made.mode.reason == "this device claims no graph capture"


def test_eager_that_was_asked_for_is_no_fallback() -> None:
    made = planned(enforce_eager=True)
    assert (made.mode.name, made.fallbacks) == ("eager", ())
    assert made.mode.reason == "enforce_eager is set"


@pytest.mark.parametrize("graph", [None, GraphSupport()])
def test_capture_that_is_claimed_and_that_nobody_does_is_a_fallback(
    graph: GraphSupport | None,
) -> None:
    made = planned(graph=graph)
    assert made.mode.name == "eager"
    (fallback,) = made.fallbacks
    assert (fallback.level, fallback.subject) == (FallbackLevel.PATH, "graph capture")
    assert "nothing here captures and replays graphs" in fallback.reason
    assert fallback.reason.endswith("; --enforce-eager accepts a start without graphs")


@pytest.mark.parametrize("level", list(GraphLevel))
def test_the_attention_backend_bounds_the_level(level: GraphLevel) -> None:
    backend = PaperBackend("paper/fast", CAPTURED, graph=GraphSupport(level))
    made = planned(backend=backend)
    assert made.mode.name == ("eager" if level is GraphLevel.NONE else level.value)
    assert made.attention[0].assignment.request.needs_graph == (level in ("decode", "full"))
    assert bool(made.fallbacks) == (level is not GraphLevel.FULL)
    if made.fallbacks:
        assert f"attention backend paper/fast allows {level.value}" in made.fallbacks[0].reason


def test_layers_that_cannot_run_inside_a_graph_leave_the_rest_captured() -> None:
    backend = PaperBackend("paper/fast", graph=FULL)
    made = planned(backend=backend)
    assert made.mode.name == "piecewise"
    assert not made.attention[0].assignment.request.needs_graph
    assert "graph capture, which it does not take" in made.fallbacks[0].reason


@pytest.mark.parametrize(
    ("of_device", "of_backend", "told"),
    [
        ((8, 16), (32,), "the device 8, 16; attention backend paper/fast 32"),
        ((128,), (), "no token count up to 64 can be captured: the device 128"),
    ],
)
def test_sizes_that_have_nothing_in_common_leave_no_graph(
    of_device: tuple[int, ...], of_backend: tuple[int, ...], told: str
) -> None:
    backend = PaperBackend(
        "paper/fast", CAPTURED, graph=GraphSupport(GraphLevel.FULL, sizes=of_backend)
    )
    made = planned(GraphSupport(GraphLevel.FULL, sizes=of_device), backend)
    assert made.mode.name == "eager"
    assert told in made.fallbacks[0].reason


def test_a_device_that_holds_no_graph_captures_none() -> None:
    made = planned(GraphSupport(GraphLevel.FULL, max_graphs=0))
    assert made.mode.name == "eager"
    assert "the device allows 0 graphs" in made.mode.reason


def test_a_backend_that_raises_is_the_plugins_error() -> None:
    class Broken(PaperBackend):
        def graph_support(self) -> GraphSupport:
            raise OSError("no chip")

    with pytest.raises(PluginError, match=r"raised when asked graph_support.*no chip"):
        planned(backend=Broken("paper/broken", CAPTURED))
