"""The worker of the plugin: its life, its errors, what it counts and what it obeys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.subject import Facts, Raised, Subject
from dougong_conformance.suite.memory import SHARED_MOVED_BYTES
from dougong_conformance.zoo.vectors import Vector, vectors_of

MODEL = "grouped"
_MIB = 1 << 20
_MOST_S = 10.0
_LIFE = (
    ("init_device", "device_ready"),
    ("load_model", "model_loaded"),
    ("get_kv_cache_groups", "model_loaded"),
    ("determine_available_memory", "model_loaded"),
    ("initialize_kv_cache", "cache_ready"),
    ("warm_up", "running"),
    ("shutdown", "shut_down"),
    ("shutdown", "shut_down"),
)


@check("worker.life_cycle")
def life_cycle(subject: Subject, judge: Judge) -> None:
    vectors = vectors_of(MODEL)
    found = subject.call(
        "worker.life",
        model=MODEL,
        dtype=first_dtype(subject.facts),
        prompts=[one.prompt for one in vectors],
        count=len(vectors[0].tokens),
    )
    for (call, state), seen in zip(_LIFE, found["states"], strict=True):
        judge.require(
            tuple(seen) == (call, state), f"after {call} the worker is {seen[1]}; expected {state}"
        )
    for vector, tokens in zip(vectors, found["tokens"], strict=True):
        same_tokens(judge, tokens, vector, "a worker of its own")
    judge.require(found["available"] > 0, f"{found['available']} bytes are left for the KV cache")


@check("worker.refuses_calls_out_of_order")
def refuses_calls_out_of_order(subject: Subject, judge: Judge) -> None:
    found: dict[str, Raised | None] = subject.call(
        "worker.out_of_order",
        model=MODEL,
        dtype=first_dtype(subject.facts),
        prompt=vectors_of(MODEL)[0].prompt,
    )
    for call, raised in found.items():
        if raised is None:
            judge.fail(f"{call}: it goes on as if nothing were wrong")
        judge.require(
            "DougongError" in raised.kinds, f"{call}: it ends in {raised.kind}: {raised.message}"
        )


@check("worker.survives_a_bad_step")
def survives_a_bad_step(subject: Subject, judge: Judge) -> None:
    vector = vectors_of(MODEL)[0]
    found = _with_vector(subject, "worker.bad_step", vector)
    raised: Raised | None = found["raised"]
    judge.require(raised is not None, "a step out of its turn is taken")
    same_tokens(judge, found["tokens"], vector, "after a step that was refused")


@check("worker.counts_foreign_memory")
def counts_foreign_memory(subject: Subject, judge: Judge) -> None:
    is_shared = subject.facts.shares_host_memory
    # Among other programs of a host more is taken, and again, so that what they do stands out less.
    most, tries = (SHARED_MOVED_BYTES, 4) if is_shared else (128 * _MIB, 1)
    num_bytes = min(most, subject.call("memory.info")["free"] // 4)
    least = (0.5 if is_shared else 0.75) * num_bytes
    for attempt in range(tries):
        found = subject.call(
            "worker.foreign_memory",
            model=MODEL,
            dtype=first_dtype(subject.facts),
            num_bytes=num_bytes,
        )
        fell = found["before"] - found["during"]
        if fell >= least or attempt + 1 == tries:
            judge.require(
                0 < found["before"] <= found["total"],
                f"{found['before']} bytes are available of {found['total']}",
            )
            judge.require(
                fell >= least,
                f"somebody else took {num_bytes} bytes, and what is available fell by {fell}",
            )
            return


@check("worker.obeys_the_plan")
def obeys_the_plan(subject: Subject, judge: Judge) -> None:
    reached: set[str] = set()
    registered: set[str] = set()
    for model in ("grouped", "tied", "window"):
        for dtype in subject.facts.dtypes:
            found = _counted(subject, model, dtype)
            _judge_ops(judge, found, f"{model} in {dtype}")
            _judge_backends(judge, found, f"{model} in {dtype}")
            reached |= set(found["ran"])
            registered |= set(found["registered"])
    for name in sorted(registered - reached):
        judge.warn(f"{name} was never reached by a model of the zoo")


def _judge_ops(judge: Judge, found: dict[str, Any], where: str) -> None:
    judge.require(
        found["loaded"] == found["planned"],
        f"{where}: loading tells of {found['loaded']}; the plan says {found['planned']}",
    )
    planned = {
        f"{key} {name}"
        for key, by_name in found["planned"].items()
        for name in by_name
        if name != "native"
    }
    ran = set(found["ran"])
    judge.require(
        ran <= planned,
        f"{where}: {', '.join(sorted(ran - planned))} ran, which the plan does not name",
    )
    idle = {name for name in planned - ran if not name.startswith(_ONLY_WHERE_DRAWN)}
    judge.require(not idle, f"{where}: the plan names {', '.join(sorted(idle))}, which never ran")


_ONLY_WHERE_DRAWN = ("top_k_top_p ", "logprobs ")
"""Ops of sampling that greedy requests do not need."""


def _judge_backends(judge: Judge, found: dict[str, Any], where: str) -> None:
    planned = set(found["planned_backends"])
    judge.require(
        set(found["loaded_backends"]) == planned == set(found["ran_backends"]),
        f"{where}: attention backends planned {sorted(planned)}, loaded "
        f"{sorted(found['loaded_backends'])}, run {sorted(found['ran_backends'])}",
    )


def _counted(subject: Subject, model: str, dtype: str) -> dict[str, Any]:
    prompts = [vector.prompt for vector in vectors_of(model)]
    found: dict[str, Any] = subject.call(
        "worker.plan_and_counts", model=model, dtype=dtype, prompts=prompts, count=3
    )
    return found


@check("worker.layout_is_as_planned")
def layout_is_as_planned(subject: Subject, judge: Judge) -> None:
    for model in ("grouped", "window"):
        found = subject.call("worker.layouts", model=model, dtype=first_dtype(subject.facts))
        judge.require(
            found["given"] == found["planned"],
            f"{model}: planned with {found['planned']}, loaded with {found['given']}",
        )


@check("worker.uses_its_device")
def uses_its_device(subject: Subject, judge: Judge) -> None:
    if subject.facts.shares_host_memory:
        judge.not_claimed("the device shares the host's memory: nobody sees whose what is taken is")
    if subject.facts.num_devices < 2:
        judge.not_run("needs two devices")
    vector = vectors_of(MODEL)[0]
    found = _with_vector(subject, "worker.on_device", vector, device_index=1)
    judge.at_most("device 0: MiB taken by a worker on device 1", found["taken"][0] / _MIB, 1)
    judge.require(found["taken"][1] > 0, "a worker on device 1 takes no memory there")
    same_tokens(judge, found["tokens"], vector, "on device 1")


@check("worker.errors_are_classified")
def errors_are_classified(subject: Subject, judge: Judge) -> None:
    vector = vectors_of(MODEL)[0]
    found = _out_of_memory(subject, judge, vector)
    raised: Raised | None = found["raised"]
    if raised is None:
        judge.fail("a step without memory for its results ends without an error")
    judge.at_most("seconds until the error is there", found["seconds"], _MOST_S)
    judge.require(
        "DeviceError" in raised.kinds,
        f"a step that runs out of memory ends in {raised.kind}: {raised.message}",
    )
    for name, expected in (("device_index", 0), ("rank", 0), ("step_id", found["step"])):
        given = raised.attributes.get(name)
        judge.require(given == expected, f"the error's {name} is {given}; expected {expected}")


@check("worker.works_after_running_out_of_memory")
def works_after_running_out_of_memory(subject: Subject, judge: Judge) -> None:
    vector = vectors_of(MODEL)[0]
    found = _out_of_memory(subject, judge, vector)
    after: Raised | None = found["after"]
    judge.require(
        after is None,
        f"once there is memory again: {after and after.kind}: {after and after.message}",
    )
    same_tokens(judge, found["tokens"], vector, "once there is memory again")


def _out_of_memory(subject: Subject, judge: Judge, vector: Vector) -> dict[str, Any]:
    if subject.facts.shares_host_memory:
        judge.not_claimed("the device shares the host's memory, which is not filled for a test")
    return _with_vector(subject, "worker.out_of_memory", vector)


@check("worker.sleep_frees")
def sleep_frees(subject: Subject, judge: Judge) -> None:
    found = _with_vector(subject, "worker.sleeps", vectors_of(MODEL)[0])
    if found["freed"] is None:
        judge.not_claimed(f"the worker does not sleep: {found['reason']}")
    judge.require(found["state"] == "asleep", f"after sleep() the worker is {found['state']}")
    judge.require(
        found["freed"] >= 0.9 * found["weights"],
        f"sleep frees {found['freed']} bytes; its weights alone are {found['weights']}",
    )


@check("worker.wake_restores")
def wake_restores(subject: Subject, judge: Judge) -> None:
    vector = vectors_of(MODEL)[0]
    found = _with_vector(subject, "worker.sleeps", vector)
    if found["freed"] is None:
        judge.not_claimed(f"the worker does not sleep: {found['reason']}")
    same_tokens(judge, found["tokens"], vector, "after a sleep")


def _with_vector(subject: Subject, procedure: str, vector: Vector, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = subject.call(
        procedure,
        model=vector.model,
        dtype=first_dtype(subject.facts),
        prompt=vector.prompt,
        count=len(vector.tokens),
        **more,
    )
    return found


def first_dtype(facts: Facts) -> str:
    """float32 where it is claimed, else the preferred one."""
    return "float32" if "float32" in facts.dtypes else facts.dtypes[0]


def same_tokens(judge: Judge, tokens: Sequence[int], vector: Vector, where: str) -> None:
    """Require the stored answer; its margin leaves no room for rounding."""
    judge.require(
        list(tokens) == vector.tokens,
        f"{where}: model {vector.model}, a prompt of {len(vector.prompt)} tokens goes on "
        f"{list(tokens)}; expected {vector.tokens} (margin {vector.margin})",
    )


@check("worker.supported_requests_can_be_made")
def supported_requests_can_be_made(subject: Subject, judge: Judge) -> None:
    problems = subject.call("worker.made_for_requests")
    judge.require(not problems, f"a backend says yes, and then: {'; '.join(problems[:3])}")
