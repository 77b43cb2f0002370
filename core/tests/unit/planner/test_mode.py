from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from dougong.config import GraphConfig
from dougong.contracts import (
    AttentionBackend,
    AttentionLimits,
    AttentionPhase,
    ConfigError,
    GraphLevel,
    GraphSupport,
    PluginError,
)
from dougong.planner import ExecutionPlan, FallbackLevel, plan
from tests.unit.planner.paper import PaperBackend, named, paper_inputs

CAPTURED = AttentionLimits(dtypes=frozenset({"bfloat16"}), graph=True)
FULL = GraphSupport(GraphLevel.FULL)


def planned(
    graph: GraphSupport | None = FULL,
    backend: PaperBackend | None = None,
    is_claimed: bool = True,
    backends: Mapping[str, AttentionBackend] | None = None,
    failed_capture: str = "",
    config: Mapping[str, Any] | None = None,
) -> ExecutionPlan:
    backend = backend or PaperBackend("paper/fast", CAPTURED, graph=FULL)
    return plan(
        paper_inputs(
            config=dict(config or {}),
            claims={"graph_capture": is_claimed},
            candidates={
                "attention": backends or named(backend),
                "graph": graph,
                "failed_capture": failed_capture,
            },
        )
    )


def test_as_much_is_captured_as_device_and_attention_allow() -> None:
    made = planned()
    assert made.mode.name == "full"
    assert made.attention[0].assignment.request.needs_graph
    assert made.fallbacks == ()


def test_nothing_is_captured_where_nothing_is_claimed_and_that_is_no_fallback() -> None:
    made = planned(graph=None, is_claimed=False)
    assert (made.mode.name, made.fallbacks) == ("none", ())
    assert made.mode.reason == "this device claims no graph capture"


def test_eager_that_was_asked_for_is_no_fallback() -> None:
    made = planned(config={"enforce_eager": True})
    assert (made.mode.name, made.fallbacks) == ("none", ())
    assert made.mode.reason == "enforce_eager is set"


@pytest.mark.parametrize("graph", [None, GraphSupport()])
def test_capture_that_is_claimed_and_that_nobody_does_is_a_fallback(
    graph: GraphSupport | None,
) -> None:
    made = planned(graph=graph)
    assert made.mode.name == "none"
    (fallback,) = made.fallbacks
    assert (fallback.level, fallback.subject) == (FallbackLevel.PATH, "graph capture")
    assert "nothing here captures and replays graphs" in fallback.reason
    assert fallback.reason.endswith("; --enforce-eager accepts a start without graphs")


@pytest.mark.parametrize("level", list(GraphLevel))
def test_the_attention_backend_bounds_the_level(level: GraphLevel) -> None:
    backend = PaperBackend("paper/fast", CAPTURED, graph=GraphSupport(level))
    made = planned(backend=backend)
    assert made.mode.name == ("none" if level is GraphLevel.NONE else level.value)
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


def test_sizes_that_device_and_attention_do_not_share_leave_attention_outside() -> None:
    backend = PaperBackend("paper/fast", CAPTURED, graph=GraphSupport(GraphLevel.FULL, sizes=(32,)))
    made = planned(GraphSupport(GraphLevel.FULL, sizes=(8, 16)), backend)
    assert made.mode.name == "piecewise"
    assert "the device 8, 16; attention backend paper/fast 32" in made.fallbacks[0].reason
    assert made.mode.graphs.piecewise == (8, 16)


def test_a_device_whose_sizes_no_step_has_captures_nothing() -> None:
    made = planned(GraphSupport(GraphLevel.FULL, sizes=(128,)))
    assert made.mode.name == "none"
    told = "no token count up to 64 can be captured: the device 128"
    assert told in made.fallbacks[0].reason


def test_a_device_with_large_sizes_alone_captures_those_that_are_asked_for() -> None:
    large, wide = GraphSupport(GraphLevel.FULL, sizes=(1024,)), {"max_num_batched_tokens": 2048}
    backend = PaperBackend("paper/fast", CAPTURED, graph=GraphSupport(GraphLevel.PIECEWISE))
    made = planned(large, backend, config=wide)
    assert made.mode.name == "none"
    told = "no token count up to 512 can be captured, and a larger one is only where --graph-sizes"
    assert told in made.fallbacks[0].reason
    asked = {**wide, "graphs": GraphConfig(sizes=(1024,), memory_bytes=1)}
    assert planned(large, backend, config=asked).mode.graphs.piecewise == (1024,)


def test_a_level_above_what_the_device_claims_is_refused_for_that_reason() -> None:
    asked = {"graphs": GraphConfig(level=GraphLevel.DECODE, memory_bytes=1)}
    told = "no more than piecewise is possible: the device claims no more"
    with pytest.raises(ConfigError, match=told):
        planned(GraphSupport(GraphLevel.PIECEWISE), config=asked)


def test_a_device_that_holds_no_graph_captures_none() -> None:
    made = planned(GraphSupport(GraphLevel.FULL, max_graphs=0))
    assert made.mode.name == "none"
    assert "the device allows 0 graphs" in made.mode.reason


def test_a_backend_that_raises_is_the_plugins_error() -> None:
    class Broken(PaperBackend):
        def graph_support(self) -> GraphSupport:
            raise OSError("no chip")

    with pytest.raises(PluginError, match=r"raised when asked graph_support.*no chip"):
        planned(backend=Broken("paper/broken", CAPTURED))


def test_a_capture_that_failed_leaves_eager_steps_and_its_reason() -> None:
    made = planned(failed_capture="the capture of decode 8: no stream is left")
    assert made.mode.name == "none"
    (fallback,) = made.fallbacks
    assert "it failed at its first use: the capture of decode 8: no stream is left" in (
        fallback.reason
    )


def test_a_pair_of_backends_stays_outside_the_graphs() -> None:
    backends = named(
        *(
            PaperBackend(f"paper/{phase}", replace(CAPTURED, phases=frozenset({phase})), graph=FULL)
            for phase in (AttentionPhase.PREFILL, AttentionPhase.DECODE)
        )
    )
    made = planned(backends=backends)
    assert made.mode.name == "piecewise"
    assert "share each step, which is split on the host" in made.fallbacks[0].reason


def asked(**graphs: Any) -> dict[str, Any]:
    return {"graphs": GraphConfig(memory_bytes=1000, **graphs)}


@pytest.mark.parametrize("level", [GraphLevel.PIECEWISE, GraphLevel.DECODE])
def test_a_lower_level_that_was_asked_for_is_obeyed_and_no_fallback(level: GraphLevel) -> None:
    made = planned(config=asked(level=level))
    assert (made.mode.name, made.fallbacks) == (level.value, ())
    assert made.mode.reason == f"graph_level={level.value} was asked for"
    assert bool(made.mode.graphs.decode) == (level is GraphLevel.DECODE)
    assert made.mode.graphs.max_bytes == 1000
    assert made.rank_plan.graphs == made.mode.graphs


def test_no_graphs_that_were_asked_for_are_no_fallback() -> None:
    made = planned(config=asked(level=GraphLevel.NONE))
    assert (made.mode.name, made.fallbacks) == ("none", ())
    assert not made.mode.graphs


FEW = GraphSupport(GraphLevel.FULL, max_graphs=2)
ONLY_4 = GraphSupport(GraphLevel.FULL, sizes=(4,))
PIECES = PaperBackend("paper/fast", CAPTURED, graph=GraphSupport(GraphLevel.PIECEWISE))


@pytest.mark.parametrize(
    ("graphs", "options", "told"),
    [
        ({"level": GraphLevel.DECODE}, {}, "no more than piecewise is possible: attention"),
        ({"sizes": (4,)}, {"is_claimed": False}, "no more than eager is possible: this device"),
        ({"level": GraphLevel.FULL}, {"graph": None}, "nothing here captures"),
        ({"level": GraphLevel.PIECEWISE}, {"graph": FEW}, "2 graphs, and one step in pieces has"),
        ({"sizes": (4, 64)}, {"graph": ONLY_4}, "sizes=4,64 was asked for: .* 4, and not 64"),
    ],
)
def test_what_was_asked_for_and_cannot_be_is_refused_with_the_reason(
    graphs: dict[str, Any], options: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        planned(backend=PIECES, config=asked(**graphs), **options)


def test_fewer_graphs_than_one_step_has_pieces_leave_eager_steps() -> None:
    made = planned(FEW, PIECES)
    assert made.mode.name == "none"
    assert "the device allows 2 graphs, and one step in pieces has 3" in made.fallbacks[0].reason
