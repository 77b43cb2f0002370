"""What a step does beside computing: waits, copies, falls back, compiles anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dougong_conformance.drivers.driven_worker import Driven
from dougong_conformance.drivers.streams import Work, slow_work
from dougong_conformance.drivers.worker import started
from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session

# In inference mode what is made of other operators passes as it was called.
_COPIES = ("_to_copy", "copy_", "_copy_from", "to", "cpu")
_READS = ("_local_scalar_dense", "item", "is_nonzero", "nonzero", "masked_select", "equal")
_PENDING = 6  # times the slow work: far above the host's own time for a step


class StepTrace(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own has no types
    """What passes torch's dispatcher on the host's thread inside the block.

    Args:
        device_type: Of the device under test.
    """

    def __init__(self, device_type: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self._device_type = device_type
        self.found: dict[str, int] = {"reads": 0, "to_host": 0, "to_host_waiting": 0}
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Look, then do it."""
        name = func.overloadpacket.__name__
        result = func(*args, **(kwargs or {}))
        if name in _READS and self._is_here(args[0]):
            self._note("reads", name)
        if name in _COPIES and isinstance(result, torch.Tensor) and result.device.type == "cpu":
            source = args[1] if name == "copy_" else args[0]
            if self._is_here(source):
                self._note("to_host", name)
                waits = not (kwargs or {}).get("non_blocking", len(args) > 2 and args[2])
                if waits:
                    self._note("to_host_waiting", name)
        return result

    def _note(self, what: str, name: str) -> None:
        self.found[what] += 1
        self.names.append(name)

    def _is_here(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.device.type == self._device_type


@procedure("performance.step_trace")
def step_trace(
    session: Session, model: str, dtype: str, prompts: list[list[int]], count: int
) -> dict[str, Any]:
    """What the decode steps of a batch do, those of the first few left out.

    Returns:
        ``steps``; ``submit`` and ``sample``: what `StepTrace` found; ``waits``: calls of the
        runtime's synchronize and of its events' while steps were enqueued; ``fallbacks``: operators
        that the profiler saw moved to the host.
    """
    kept = f"performance.step_trace {model} {dtype} {prompts} {count}"
    if kept in session.kept:
        found: dict[str, Any] = session.kept[kept]
        return found
    driven = started(session, model, dtype)
    requests = [driven.request(prompt, count + 3) for prompt in prompts]
    names = [one.request_id for one in requests]
    driven.worker.execute_model(driven.step(new=requests))
    driven.worker.execute_model(driven.step(cached=names))
    device_type = session.device.type
    submits, samples = StepTrace(device_type), StepTrace(device_type)
    waits: list[str] = []
    with _noting_waits(driven, waits):
        for _ in range(count):
            step = driven.step(cached=names)
            with submits:
                handle = driven.worker.submit(step)
            with samples:
                handle = driven.worker.sample(handle)
            seen = len(waits)
            handle.result()
            del waits[seen:]  # a result may wait
    fallbacks = _fallbacks(driven, names)
    driven.shutdown()
    found = {
        "steps": count,
        "submit": submits.found,
        "sample": samples.found,
        "names": submits.names,
        "waits": waits,
        "fallbacks": fallbacks,
    }
    session.kept[kept] = found
    return found


@contextmanager
def _noting_waits(driven: Driven, waits: list[str]) -> Iterator[None]:
    runtime: Any = driven.worker.context.platform.runtime
    synchronize: Callable[[], None] = runtime.synchronize

    def noted() -> None:
        waits.append("synchronize")
        synchronize()

    runtime.synchronize = noted
    try:
        yield
    finally:
        del runtime.synchronize


def _fallbacks(driven: Driven, names: list[str]) -> list[str]:
    """Operators of one step whose tensors a fallback moved to the host."""
    with torch.autograd.profiler.profile() as profile:
        driven.worker.execute_model(driven.step(cached=names))
    events = profile.function_events or []
    return sorted({str(event.name) for event in events if event.name == "aten::_to_cpu"})


@procedure("performance.step_behind_work")
def step_behind_work(
    session: Session, model: str, dtype: str, prompts: list[list[int]]
) -> dict[str, float]:
    """How much of the time until a decode step's result, behind long work, enqueuing it takes."""
    driven = started(session, model, dtype)
    requests = [driven.request(prompt, 12) for prompt in prompts]
    names = [one.request_id for one in requests]
    driven.worker.execute_model(driven.step(new=requests))
    for _ in range(2):
        driven.worker.execute_model(driven.step(cached=names))
    work, least = slow_work(session), 1.0
    for _ in range(3):
        session.runtime.synchronize()
        ends = [work.enqueue() for _ in range(_PENDING)]
        begin = time.perf_counter()
        handle = driven.submit(driven.step(cached=names))
        enqueued = time.perf_counter() - begin
        handle.result()
        least = min(least, enqueued / (time.perf_counter() - begin))
        del ends
    driven.shutdown()
    return {"share": least}


@procedure("performance.calls_behind_work")
def calls_behind_work(session: Session, x: torch.Tensor, weight: torch.Tensor) -> dict[str, float]:
    """`waited_share` of each implementation of ``rms_norm``."""
    from dougong_conformance.drivers.op_plan import choose
    from dougong_conformance.drivers.ops import bound_op, made_op

    work = slow_work(session)
    sizes = {"hidden_size": weight.numel(), "eps": 1e-5, "dtype": "float32"}
    with torch.device("meta"):
        outline = made_op(session, "rms_norm", sizes)
    found: dict[str, float] = {}
    there = x.to(session.device)
    for name in ("native", *choose(session, outline, "float32").holding):
        op = bound_op(session, "rms_norm", sizes, {"weight": weight}, "float32", name)
        op(there)
        found[name] = waited_share(session, work, partial(op, there))
    return found


def waited_share(session: Session, work: Work, call: Callable[[], Any]) -> float:
    """How much of the time until the device is idle passes inside a call behind slow work.

    Near 1: the call waits. The least of three tries counts, each held against its own time.
    """
    least = 1.0
    for _ in range(3):
        session.runtime.synchronize()
        end = work.enqueue()
        begin = time.perf_counter()
        call()
        returned = time.perf_counter() - begin
        session.runtime.synchronize()
        least = min(least, returned / (time.perf_counter() - begin))
        del end
    return least


@procedure("performance.new_shapes")
def new_shapes(
    session: Session, model: str, dtype: str, prompts: list[list[int]]
) -> dict[str, Any]:
    """Seconds of steps at batch sizes that were not seen since the warm-up, and when seen again."""
    driven = started(session, model, dtype)
    first: list[float] = []
    again: list[float] = []
    for kept in (first, again):
        for size in range(1, len(prompts) + 1):
            requests = [driven.request(prompt[: 3 + size], 3) for prompt in prompts[:size]]
            names = [one.request_id for one in requests]
            begin = time.perf_counter()
            driven.worker.execute_model(driven.step(new=requests))
            driven.worker.execute_model(driven.step(cached=names))
            kept.append(time.perf_counter() - begin)
            driven.forget(names)
    driven.shutdown()
    return {"first_s": first, "again_s": again}


@procedure("performance.decode_seconds")
def decode_seconds(
    session: Session, model: str, dtype: str, prompts: list[list[int]], eager: bool
) -> dict[str, Any]:
    """Median time of a decode step, through graphs or not."""
    driven = started(session, model, dtype, enforce_eager=eager or None)
    requests = [driven.request(prompt, 30) for prompt in prompts]
    names = [one.request_id for one in requests]
    driven.worker.execute_model(driven.step(new=requests))
    seconds = []
    for _ in range(20):
        begin = time.perf_counter()
        driven.worker.execute_model(driven.step(cached=names))
        seconds.append(time.perf_counter() - begin)
    graphs = dict(driven.worker.collect()).get("graphs") or {}
    driven.shutdown()
    return {
        "median_s": sorted(seconds)[len(seconds) // 2],
        "hits": sum(dict(graphs.get("hits", {})).values()),
    }


@procedure("performance.clocks")
def clocks(session: Session) -> list[dict[str, float]] | None:
    """One and four times the slow work, by the device's events and by the host's clock."""
    work, runtime = slow_work(session), session.runtime
    found = []
    for times in (1, 4):
        runtime.synchronize()
        first, second = runtime.new_event(), runtime.new_event()
        if not hasattr(first, "elapsed_time"):
            return None
        begin = time.perf_counter()
        first.record()
        ends = [work.enqueue() for _ in range(times)]
        second.record()
        second.synchronize()
        host_ms = (time.perf_counter() - begin) * 1e3
        del ends
        try:
            device_ms = float(first.elapsed_time(second))
        except (RuntimeError, ValueError, AttributeError, NotImplementedError):
            return None
        found.append({"device_ms": device_ms, "host_ms": host_ms})
    return found
