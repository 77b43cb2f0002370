"""Streams and events: order kept, waits that wait, answers that are true."""

from __future__ import annotations

import torch

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.kit.generate import Draw
from dougong_conformance.kit.oracle.norm import rms_norm
from dougong_conformance.subject import Subject

_POISON = -77.0
# Launched in less than this share of the work's time, the device runs behind the host.
_RUNS_BEHIND = 0.3
_CLOCK_MARGIN = 5.0  # between two clocks of a busy machine


@check("streams.work_keeps_its_order")
def work_keeps_its_order(subject: Subject, judge: Judge) -> None:
    given = Draw("streams.work_keeps_its_order").integers(-9, 9, 33).float()
    expected = ((given + 1) * 3 - 2).square()
    found = subject.call("streams.in_order", tensor=given)
    judge.exact(found["side"], expected, "steps on one side stream")
    judge.exact(found["default"], expected, "steps on the default stream")


@check("streams.event_tells_the_truth")
def event_tells_the_truth(subject: Subject, judge: Judge) -> None:
    found = subject.call("streams.event_truth")
    behind = found["launch_s"] / found["waited_s"]
    judge.metric("launch over work", behind)
    judge.require(
        not (behind < _RUNS_BEHIND and found["was_done"]),
        f"an event right behind {found['waited_s'] * 1e3:.0f} ms of work, launched in "
        f"{found['launch_s'] * 1e3:.1f} ms, says that the work is done",
    )
    judge.require(found["is_done"], "an event that was waited for says that its work is not done")


@check("streams.waits_wait")
def waits_wait(subject: Subject, judge: Judge) -> None:
    given = Draw("streams.waits_wait").normal(65)
    found = subject.call("streams.waits", tensor=given, poison=_POISON)
    for way, seen in found.items():
        judge.exact(seen["copy"], given, f"a copy once the {way} was waited for")
        judge.require(seen["is_done"], f"the {way} was waited for, and its event is not done")


@check("streams.wait_event_orders")
def wait_event_orders(subject: Subject, judge: Judge) -> None:
    given = Draw("streams.wait_event_orders").normal(65)
    found = subject.call("streams.wait_event", tensor=given)
    judge.exact(found["consumed"], given * 2, "what a second stream read behind the event")


@check("streams.event_is_recorded_where_told")
def event_is_recorded_where_told(subject: Subject, judge: Judge) -> None:
    given = Draw("streams.event_is_recorded_where_told").normal(65)
    found = subject.call("streams.event_takes_stream", tensor=given, poison=_POISON)
    judge.exact(found, given, "a copy behind an event that was recorded on its stream")


@check("streams.previous_stream_is_restored")
def previous_stream_is_restored(subject: Subject, judge: Judge) -> None:
    found = subject.call("streams.use_restores")
    judge.require(
        found["share"] < 0.5,
        f"waiting for streams that were left takes {found['share']:.0%} of the time that work on "
        "the default one takes: the work went to them",
    )


@check("streams.elapsed_time_is_in_ms")
def elapsed_time_is_in_ms(subject: Subject, judge: Judge) -> None:
    found = subject.call("streams.elapsed")
    if found is None:
        judge.not_claimed("events of this runtime measure no time")
    ratio = found["device_ms"] / max(found["host_ms"], 1e-3)
    judge.metric("device's clock over the host's", ratio)
    judge.require(
        1 / _CLOCK_MARGIN <= ratio <= _CLOCK_MARGIN,
        f"the device's events give {found['device_ms']:.4g} ms for what took "
        f"{found['host_ms']:.4g} ms by the host's clock",
    )


@check("streams.results_are_ordered_with_the_caller")
def results_are_ordered_with_the_caller(subject: Subject, judge: Judge) -> None:
    draw = Draw("streams.results_are_ordered_with_the_caller")
    x, weight = draw.normal(5, 64), draw.normal(64)
    found: dict[str, torch.Tensor] = subject.call(
        "streams.consume_behind_ops", x=x, weight=weight, poison=_POISON
    )
    judge.require("native" in found, f"plain torch was not among {', '.join(found) or 'nothing'}")
    for name, consumed in found.items():
        judge.close(consumed, rms_norm(x, weight, 1e-5), name=f"{name}: consumed behind the call")
