"""Captured once, replayed often: with new values, at the same place, and never half."""

from __future__ import annotations

from typing import Any

import torch

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.kit.generate import Draw
from dougong_conformance.kit.metric import F64, Expected
from dougong_conformance.subject import Subject
from dougong_conformance.suite.memory import slack_bytes

_INNER, _COLUMNS = 16, 9
_MIB = 1 << 20


@check("graph.replay_sees_new_inputs")
def replay_sees_new_inputs(subject: Subject, judge: Judge) -> None:
    draw, weight = _draw("replay_sees_new_inputs")
    inputs = [draw.normal(4, _INNER) for _ in range(4)]
    found = _asked(subject, judge, "graph.replays", weight=weight, inputs=inputs)
    for index, (x, output) in enumerate(zip(inputs, found["outputs"], strict=True)):
        judge.close(output, _expected(x, weight), name=f"replay {index}")
    judge.require(not found["moved"], "the output of a graph lies elsewhere after a replay")


@check("graph.two_graphs_are_independent")
def two_graphs_are_independent(subject: Subject, judge: Judge) -> None:
    draw, weight = _draw("two_graphs_are_independent")
    first, second = draw.normal(4, _INNER), draw.normal(2, _INNER)
    found = _asked(subject, judge, "graph.two", weight=weight, first=first, second=second)
    judge.close(found["a"], _expected(first, weight), name="the first graph")
    judge.close(found["b"], _expected(second, weight), name="the second graph")
    judge.exact(found["a after b"], found["a"], "the first graph's output after the second ran")


@check("graph.memory_is_bounded")
def memory_is_bounded(subject: Subject, judge: Judge) -> None:
    found = _asked(subject, judge, "graph.memory", count=12, num_bytes=_captured_bytes(subject))
    slack = slack_bytes(subject.facts)
    judge.at_most("MiB lost in 12 captures", found["lost"] / _MIB, slack / _MIB)


@check("graph.memory_is_told")
def memory_is_told(subject: Subject, judge: Judge) -> None:
    found = _asked(subject, judge, "graph.memory", count=3, num_bytes=_MIB)
    judge.require(
        min(found["told"]) >= 0.5 * _MIB,
        f"graphs that hold a MiB are told to take {found['told']} bytes",
    )
    judge.require(
        max(found["told"]) <= 64 * _MIB, f"graphs of a MiB are told to take {found['told']} bytes"
    )
    judge.require(
        found["after_release"] < 0.5 * _MIB,
        f"after every release {found['after_release']} bytes are told",
    )


@check("graph.failure_is_loud")
def failure_is_loud(subject: Subject, judge: Judge) -> None:
    found = _asked(subject, judge, "graph.failures")
    for name in ("the block raises", "the block reads a number"):
        raised, left = found[name]["raised"], found[name]["left"]
        judge.require(raised is not None, f"{name}: the capture goes on as if nothing were wrong")
        judge.require(not left, f"{name}: a graph is left, and {left}")
    judge.exact(found["goes on"], torch.full((4,), 3.0), "a capture after two that failed")


@check("graph.padding_rows_stay_apart")
def padding_rows_stay_apart(subject: Subject, judge: Judge) -> None:
    draw, weight = _draw("padding_rows_stay_apart")
    x = draw.normal(7, _INNER)
    found = _asked(subject, judge, "graph.padding", weight=weight, x=x, num_rows=8)
    judge.close(found, _expected(x, weight), name="seven rows of a graph of eight")


@check("graph.replay_does_not_wait")
def replay_does_not_wait(subject: Subject, judge: Judge) -> None:
    if not subject.facts.claims["async_execution"]:
        judge.not_claimed("async_execution is not claimed")
    draw, weight = _draw("replay_does_not_wait")
    found = _asked(subject, judge, "graph.replay_waits", weight=weight, x=draw.normal(2, _INNER))
    judge.at_most("replay over pending work", found["share"], 0.5)


def _captured_bytes(subject: Subject) -> int:
    """Of one graph: twelve that leak must stand out of what free memory moves by of itself."""
    return 32 * _MIB if subject.facts.shares_host_memory else _MIB


def _draw(name: str) -> tuple[Draw, torch.Tensor]:
    draw = Draw(f"graph.{name}")
    return draw, draw.normal(_INNER, _COLUMNS)


def _expected(x: torch.Tensor, weight: torch.Tensor) -> Expected:
    wide, w = x.to(F64), weight.to(F64)
    product, size = wide @ w, wide.abs() @ w.abs()
    value = product.clamp(min=0) + 1
    return Expected(value, size, torch.zeros_like(value), _INNER, torch.float32)


def _asked(subject: Subject, judge: Judge, procedure: str, **arguments: Any) -> Any:
    if not subject.facts.has_graph_runner:
        judge.not_claimed("graph_capture is not claimed")
    found = subject.call(procedure, **arguments)
    judge.require(found is not None, "graph_capture is claimed, and no runner can be made")
    return found
