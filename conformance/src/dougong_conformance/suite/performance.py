"""Not how fast, but whether anything stands in the way: waits, copies, fallbacks, compilations.

Every limit on time leaves a margin of five or more to what was measured on the same machine just
before, so a busy host fails nobody.
"""

from __future__ import annotations

import statistics
from typing import Any

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.kit.generate import Draw
from dougong_conformance.subject import Subject
from dougong_conformance.suite.worker import first_dtype
from dougong_conformance.zoo.vectors import vectors_of

_MODEL = "grouped"
_CLOCK_MARGIN = 5.0


@check("performance.launch_returns_early")
def launch_returns_early(subject: Subject, judge: Judge) -> None:
    _require_async(subject, judge)
    found = subject.call("streams.event_truth")
    judge.at_most("launch over work", found["launch_s"] / found["waited_s"], 0.5)


@check("performance.ops_do_not_wait")
def ops_do_not_wait(subject: Subject, judge: Judge) -> None:
    _require_async(subject, judge)
    draw = Draw("performance.ops_do_not_wait")
    found = subject.call(
        "performance.calls_behind_work", x=draw.normal(5, 64), weight=draw.normal(64)
    )
    for name, share in found.items():
        judge.at_most(f"{name}: call over pending work", share, 0.5)


@check("performance.steps_do_not_wait")
def steps_do_not_wait(subject: Subject, judge: Judge) -> None:
    _require_async(subject, judge)
    prompts = [one.prompt for one in vectors_of(_MODEL)]
    dtype = first_dtype(subject.facts)
    found = subject.call("performance.step_behind_work", model=_MODEL, dtype=dtype, prompts=prompts)
    judge.at_most("enqueuing a step over pending work", found["share"], 0.5)


@check("performance.no_hidden_waits")
def no_hidden_waits(subject: Subject, judge: Judge) -> None:
    _require_async(subject, judge)
    found = _traced(subject)
    reads = found["submit"]["reads"] + found["sample"]["reads"]
    judge.at_most("numbers read from the device while enqueuing", reads, 0)
    judge.at_most("waits while enqueuing", len(found["waits"]), 0)
    waiting = found["submit"]["to_host_waiting"] + found["sample"]["to_host_waiting"]
    judge.at_most("copies to the host that wait", waiting, 0)


@check("performance.no_hidden_host_copies")
def no_hidden_host_copies(subject: Subject, judge: Judge) -> None:
    if subject.facts.device_type == "cpu":
        judge.not_claimed("the device is the host")
    found = _traced(subject)
    judge.at_most("copies to the host in a forward", found["submit"]["to_host"], 0)
    per_step = found["sample"]["to_host"] / found["steps"]
    judge.at_most("copies to the host for a step's tokens", per_step, 1)


@check("performance.no_silent_fallback")
def no_silent_fallback(subject: Subject, judge: Judge) -> None:
    found = _traced(subject)["fallbacks"]
    judge.require(not found, f"operators of a step are computed on the host: {', '.join(found)}")


@check("performance.no_recompilation")
def no_recompilation(subject: Subject, judge: Judge) -> None:
    vectors = [*vectors_of(_MODEL), *vectors_of("odd"), *vectors_of("window")]
    prompts = [(one.prompt * 3)[:12] for one in vectors][:6]
    found = subject.call(
        "performance.new_shapes", model=_MODEL, dtype=first_dtype(subject.facts), prompts=prompts
    )
    usual = statistics.median(found["again_s"])
    # Far above a hiccup of the host, far below what compiling takes.
    limit = max(8 * usual, usual + 0.15)
    slow = sorted(found["first_s"])[-2]  # one of them may meet a busy host
    judge.at_most("a step of a new shape over a usual one", slow / usual, limit / usual)


@check("performance.graphs_are_no_slower")
def graphs_are_no_slower(subject: Subject, judge: Judge) -> None:
    if not subject.facts.has_graph_runner:
        judge.not_claimed("graph_capture is not claimed")
    prompts = [one.prompt for one in vectors_of(_MODEL)]
    dtype = first_dtype(subject.facts)
    graph, eager = (
        subject.call(
            "performance.decode_seconds", model=_MODEL, dtype=dtype, prompts=prompts, eager=eager
        )
        for eager in (False, True)
    )
    judge.require(graph["hits"] > 0, "no decode step went through a graph")
    ratio = graph["median_s"] / eager["median_s"]
    judge.at_most("decode step through a graph over an eager one", ratio, 5.0)
    if ratio > 1.0:
        judge.warn(f"a decode step through a graph takes {ratio:.2f} times an eager one")


@check("performance.clocks_agree")
def clocks_agree(subject: Subject, judge: Judge) -> None:
    found = subject.call("performance.clocks")
    if found is None:
        judge.not_claimed("events of this runtime measure no time")
    for one in found:
        ratio = one["device_ms"] / max(one["host_ms"], 1e-3)
        judge.require(
            1 / _CLOCK_MARGIN <= ratio <= _CLOCK_MARGIN,
            f"events give {one['device_ms']:.4g} ms for {one['host_ms']:.4g} ms of work",
        )


def _traced(subject: Subject) -> dict[str, Any]:
    found: dict[str, Any] = subject.call(
        "performance.step_trace",
        model=_MODEL,
        dtype=first_dtype(subject.facts),
        prompts=[one.prompt for one in vectors_of(_MODEL)],
        count=4,
    )
    return found


def _require_async(subject: Subject, judge: Judge) -> None:
    if not subject.facts.claims["async_execution"]:
        judge.not_claimed("async_execution is not claimed")
