"""Streams and events, with work on them whose order shows in numbers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from dougong.contracts import Event

from dougong_conformance.drivers.op_plan import choose
from dougong_conformance.drivers.ops import bound_op, made_op
from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session

_WORK_S = 0.02
_SIDE = 192
_MOST_CALLS = 4096


@dataclass(slots=True)
class Work:
    """A chain of products that takes the device a while.

    Attributes:
        matrix: Its products with itself stay near one.
        calls: Length of the chain.
        seconds: From the first call until the device is idle.
    """

    matrix: torch.Tensor
    calls: int
    seconds: float

    def enqueue(self) -> torch.Tensor:
        """Start the chain on the current stream; its end."""
        x = self.matrix
        for _ in range(self.calls):
            x = torch.mm(x, self.matrix)
        return x


def slow_work(session: Session) -> Work:
    """Work of some 20 ms, measured once."""
    kept: Work | None = session.kept.get("streams.work")
    if kept is not None:
        return kept
    matrix = torch.full((_SIDE, _SIDE), 1.0 / _SIDE, device=session.device)
    work = Work(matrix, 4, 0.0)
    while True:
        work.seconds = _seconds(session, work)
        if work.seconds >= _WORK_S or work.calls >= _MOST_CALLS:
            break
        work.calls *= 2 if work.seconds < _WORK_S / 2 else 1
        if work.seconds >= _WORK_S / 2:
            work.calls += work.calls // 2
    session.kept["streams.work"] = work
    return work


def _seconds(session: Session, work: Work) -> float:
    session.runtime.synchronize()
    begin = time.perf_counter()
    work.enqueue()
    session.runtime.synchronize()
    return time.perf_counter() - begin


@procedure("streams.in_order")
def in_order(session: Session, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """Steps that do not commute, in blocks on one side stream and on the default one."""
    runtime, device = session.runtime, session.device
    x = tensor.to(device)
    y = x.clone()
    runtime.synchronize()
    stream = runtime.new_stream()
    with runtime.use_stream(stream):
        x.add_(1)
    with runtime.use_stream(stream):
        x.mul_(3)
    with runtime.use_stream(stream):
        x.sub_(2)
        x.mul_(x)
    stream.synchronize()
    y.add_(1)
    y.mul_(3)
    y.sub_(2)
    y.mul_(y)
    runtime.synchronize()
    return {"side": x.cpu(), "default": y.cpu()}


@procedure("streams.event_truth")
def event_truth(session: Session) -> dict[str, Any]:
    """What an event says right behind slow work, and after it was waited for."""
    work, runtime = slow_work(session), session.runtime
    runtime.synchronize()
    event = runtime.new_event()
    begin = time.perf_counter()
    end = work.enqueue()
    event.record()
    was_done = event.query()
    launched = time.perf_counter() - begin
    event.synchronize()
    waited = time.perf_counter() - begin
    is_done = event.query()
    del end
    return {
        "work_s": work.seconds,
        "launch_s": launched,
        "waited_s": waited,
        "was_done": bool(was_done),
        "is_done": bool(is_done),
    }


@procedure("streams.waits")
def waits(session: Session, tensor: torch.Tensor, poison: float) -> dict[str, Any]:
    """What is there once each way to wait has come back, read without any further wait.

    Returns:
        Way → ``{"copy", "is_done"}``: the host buffer behind slow work, and an event's answer.
    """
    work, runtime, device = slow_work(session), session.runtime, session.device
    found: dict[str, Any] = {}
    source = tensor.to(device)
    for way in ("device", "stream", "event"):
        runtime.synchronize()
        host = runtime.empty_host(tuple(tensor.shape), tensor.dtype)
        host.fill_(poison)
        stream, event = runtime.new_stream(), runtime.new_event()
        if way == "stream":
            with runtime.use_stream(stream):
                _copy_behind(work, host, source, event)
            stream.synchronize()
        else:
            _copy_behind(work, host, source, event)
            (runtime.synchronize if way == "device" else event.synchronize)()
        found[way] = {"copy": host.clone(), "is_done": bool(event.query())}
    runtime.synchronize()
    return found


def _copy_behind(work: Work, host: torch.Tensor, source: torch.Tensor, event: Event) -> None:
    end = work.enqueue()
    delayed = source + end.flatten()[0] * 0
    host.copy_(delayed, non_blocking=True)
    event.record()


@procedure("streams.wait_event")
def wait_event(session: Session, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """A consumer on one stream behind a slow producer on another, tied by an event."""
    work, runtime, device = slow_work(session), session.runtime, session.device
    x = torch.zeros_like(tensor, device=device)
    source = tensor.to(device)
    runtime.synchronize()
    first, second, event = runtime.new_stream(), runtime.new_stream(), runtime.new_event()
    with runtime.use_stream(first):
        end = work.enqueue()
        x.copy_(source + end.flatten()[0] * 0)
        event.record()
    second.wait_event(event)
    with runtime.use_stream(second):
        y = x * 2
    second.synchronize()
    host = y.cpu()
    runtime.synchronize()
    return {"consumed": host}


@procedure("streams.event_takes_stream")
def event_takes_stream(session: Session, tensor: torch.Tensor, poison: float) -> torch.Tensor:
    """A host buffer behind an event that was recorded on a stream by name, not on the current one.

    The copy is on a side stream; the event is recorded there from outside of it.
    """
    work, runtime, device = slow_work(session), session.runtime, session.device
    source = tensor.to(device)
    host = runtime.empty_host(tuple(tensor.shape), tensor.dtype)
    host.fill_(poison)
    runtime.synchronize()
    stream, inside, event = runtime.new_stream(), runtime.new_event(), runtime.new_event()
    with runtime.use_stream(stream):
        _copy_behind(work, host, source, inside)
    event.record(stream)
    event.synchronize()
    found = host.clone()
    runtime.synchronize()
    return found


@procedure("streams.use_restores")
def use_restores(session: Session) -> dict[str, float]:
    """Share of the time of work on the default stream that waiting for other streams takes."""
    work, runtime = slow_work(session), session.runtime
    outer, inner = runtime.new_stream(), runtime.new_stream()
    least = 1.0
    for _ in range(3):
        runtime.synchronize()
        with runtime.use_stream(outer), runtime.use_stream(inner):
            pass
        began = time.perf_counter()
        end = work.enqueue()
        longest = 0.0
        for stream in (outer, inner):
            event = runtime.new_event()
            event.record(stream)
            begin = time.perf_counter()
            event.synchronize()
            longest = max(longest, time.perf_counter() - begin)
        runtime.synchronize()
        least = min(least, longest / (time.perf_counter() - began))
        del end
    return {"share": least}


@procedure("streams.consume_behind_ops")
def consume_behind_ops(
    session: Session, x: torch.Tensor, weight: torch.Tensor, poison: float
) -> dict[str, torch.Tensor]:
    """What a consumer on the caller's stream finds behind each implementation of ``rms_norm``."""
    runtime, device = session.runtime, session.device
    sizes = {"hidden_size": weight.numel(), "eps": 1e-5, "dtype": "float32"}
    with torch.device("meta"):
        outline = made_op(session, "rms_norm", sizes)
    found = {}
    for name in ("native", *choose(session, outline, "float32").holding):
        op = bound_op(session, "rms_norm", sizes, {"weight": weight}, "float32", name)
        there = x.to(device)
        host = runtime.empty_host(tuple(x.shape), x.dtype)
        host.fill_(poison)
        runtime.synchronize()
        with runtime.inference_mode():
            consumed = op(there) * 1.0
            host.copy_(consumed, non_blocking=True)
        event = runtime.new_event()
        event.record()
        event.synchronize()
        found[name] = host.clone()
        runtime.synchronize()
    return found


@procedure("streams.elapsed")
def elapsed(session: Session) -> dict[str, float] | None:
    """Milliseconds between two events by the device's clock, and by the host's; ``None``: the
    runtime's events have no clock."""
    work, runtime = slow_work(session), session.runtime
    runtime.synchronize()
    first, second = runtime.new_event(), runtime.new_event()
    if not hasattr(first, "elapsed_time"):
        return None
    begin = time.perf_counter()
    first.record()
    end = work.enqueue()
    second.record()
    second.synchronize()
    host_ms = (time.perf_counter() - begin) * 1e3
    del end
    try:
        return {"device_ms": float(first.elapsed_time(second)), "host_ms": host_ms}
    except (RuntimeError, ValueError, AttributeError, NotImplementedError):
        return None
