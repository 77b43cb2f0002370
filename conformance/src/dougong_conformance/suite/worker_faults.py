"""Faults on demand: what a worker makes of them, where the plugin offers some."""

from __future__ import annotations

from typing import Any

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.subject import Raised, Subject
from dougong_conformance.suite.worker import MODEL, first_dtype, same_tokens
from dougong_conformance.zoo.vectors import Vector, vectors_of

_MOST_S = 10.0
_MIB = 1 << 20
_SLOW_S = 0.4


@check("worker.fault_in_a_launch")
def fault_in_a_launch(subject: Subject, judge: Judge) -> None:
    _judge_fault(subject, judge, "launch_error", "DeviceError")


@check("worker.fault_in_a_copy")
def fault_in_a_copy(subject: Subject, judge: Judge) -> None:
    _judge_fault(subject, judge, "copy_error", "DeviceError")


@check("worker.fault_lost_device")
def fault_lost_device(subject: Subject, judge: Judge) -> None:
    _judge_fault(subject, judge, "device_lost", "DeviceLost")


@check("worker.fault_out_of_memory")
def fault_out_of_memory(subject: Subject, judge: Judge) -> None:
    _judge_fault(subject, judge, "oom_next", "OutOfDeviceMemory", keeps_worker=True)


@check("worker.fault_slow_device")
def fault_slow_device(subject: Subject, judge: Judge) -> None:
    _require_offered(subject, judge, "slow")
    if not subject.facts.claims["async_execution"]:
        judge.not_claimed("async_execution is not claimed, so a launch is as slow as the work")
    vector = vectors_of(MODEL)[0]
    found = subject.call(
        "faults.slow_step",
        model=MODEL,
        dtype=first_dtype(subject.facts),
        prompt=vector.prompt,
        seconds=_SLOW_S,
    )
    raised: Raised | None = found["raised"]
    judge.require(
        raised is not None and "TimeoutError" in raised.kinds,
        f"a result that was waited for {_SLOW_S / 10} s is there, or ends in "
        f"{raised and raised.kind}",
    )
    judge.at_most("seconds until the wait is given up", found["waited_s"], _MOST_S)
    judge.require(
        found["tokens"] == [vector.tokens[:1]],
        f"asked again the step gives {found['tokens']}; expected {vector.tokens[:1]}",
    )


def _judge_fault(
    subject: Subject, judge: Judge, kind: str, expected: str, *, keeps_worker: bool = False
) -> None:
    _require_offered(subject, judge, kind)
    vector: Vector = vectors_of(MODEL)[0]
    found: dict[str, Any] = subject.call(
        "faults.in_step",
        model=MODEL,
        dtype=first_dtype(subject.facts),
        prompt=vector.prompt,
        count=len(vector.tokens),
        kind=kind,
        keeps_worker=keeps_worker,
    )
    raised: Raised | None = found["raised"]
    if raised is None:
        judge.fail(f"{kind}: the step ends as if nothing had happened")
    judge.require(
        expected in raised.kinds,
        f"{kind}: the step ends in {raised.kind}: {raised.message}; expected {expected}",
    )
    index = raised.attributes.get("device_index")
    judge.require(index == 0, f"{kind}: the error names device {index}; it was device 0")
    judge.at_most(f"{kind}: seconds until the error", found["seconds"], _MOST_S)
    after: Raised | None = found["after"]
    who = "the same worker" if keeps_worker else "a new worker"
    judge.require(after is None, f"{kind}: {who} raises {after and after.message}")
    same_tokens(judge, found["tokens"], vector, f"{kind}: {who}")
    judge.at_most(f"{kind}: MiB lost", found["lost"] / _MIB, 2)


def _require_offered(subject: Subject, judge: Judge, kind: str) -> None:
    offered = subject.call("faults.kinds")
    if kind not in offered:
        judge.not_claimed(f"the plugin offers no fault {kind!r} (it has {offered or 'none'})")
