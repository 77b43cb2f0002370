"""The plugin's worker on a tiny model."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from typing import Any

import torch
from dougong.contracts import KVCacheConfig

from dougong_conformance.drivers.counting import counted, counting_backends
from dougong_conformance.drivers.driven_worker import Driven, make_worker
from dougong_conformance.drivers.memory import settle
from dougong_conformance.drivers.planned import prepared
from dougong_conformance.local import as_raised
from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session

_PIECE_BYTES = 4 << 20
_LEAST_PIECE_BYTES = 64 << 10
_MANY_TOKENS = 64


def started(session: Session, model: str, dtype: str, **changes: Any) -> Driven:
    """A worker that runs."""
    return make_worker(prepared(session, model, dtype, **changes)).up()


@procedure("worker.life")
def life(
    session: Session, model: str, dtype: str, prompts: list[list[int]], count: int
) -> dict[str, Any]:
    """A whole life, shut down twice.

    Returns:
        ``states`` after each call, ``tokens`` per prompt, ``available`` bytes, ``collect``.
    """
    driven = started(session, model, dtype)
    tokens = driven.generate(prompts, count)
    driven.worker.health()
    collected = dict(driven.worker.collect())
    available = driven.facts["available"]
    for _ in range(2):
        driven.shutdown()
    settle(session)
    return {
        "states": driven.states,
        "tokens": tokens,
        "available": available,
        "collect": {name: str(value) for name, value in collected.items()},
    }


@procedure("worker.out_of_order")
def out_of_order(session: Session, model: str, dtype: str, prompt: list[int]) -> dict[str, Any]:
    """What each call answers in a state that does not allow it; ``None``: nothing was raised."""
    driven = make_worker(prepared(session, model, dtype))
    worker = driven.worker
    found: dict[str, Any] = {}

    def tried(what: str, call: Any) -> None:
        try:
            call()
            found[what] = None
        except Exception as exc:  # noqa: BLE001 - the judge looks at it
            found[what] = as_raised(exc)

    tried("load_model before init_device", lambda: worker.load_model(driven.planned.plan.rank_plan))
    driven.init_device()
    tried("execute_model before load_model", lambda: worker.execute_model(
        driven.step(new=[driven.request(prompt, 4)])))  # fmt: skip
    tried("determine_available_memory before load_model", worker.determine_available_memory)
    driven.load_model()
    groups = tuple(group for group, _ in driven.facts["groups"])
    tried("execute_model before initialize_kv_cache", lambda: worker.execute_model(
        driven.step(new=[driven.request(prompt, 4)])))  # fmt: skip
    tried("warm_up before initialize_kv_cache", worker.warm_up)
    driven.shutdown()
    tried("execute_model after shutdown", lambda: worker.execute_model(
        driven.step(new=[driven.request(prompt, 4)])))  # fmt: skip
    tried("initialize_kv_cache after shutdown",
          lambda: worker.initialize_kv_cache(KVCacheConfig(4, groups)))  # fmt: skip
    return found


@procedure("worker.bad_step")
def bad_step(
    session: Session, model: str, dtype: str, prompt: list[int], count: int
) -> dict[str, Any]:
    """A step out of its turn, then ordinary ones."""
    driven = started(session, model, dtype)
    bad = driven.step(new=[driven.request(prompt, count)])
    driven._next_step -= 1
    from dataclasses import replace

    raised = None
    try:
        driven.worker.execute_model(replace(bad, step_id=bad.step_id + 7))
    except Exception as exc:  # noqa: BLE001 - the judge looks at it
        raised = as_raised(exc)
    tokens = driven.generate([prompt], count)
    driven.shutdown()
    return {"raised": raised, "tokens": tokens[0], "state": str(driven.worker.state)}


@procedure("worker.foreign_memory")
def foreign_memory(session: Session, model: str, dtype: str, num_bytes: int) -> dict[str, int]:
    """What is available before and while somebody else holds memory of the device."""
    driven = make_worker(prepared(session, model, dtype))
    driven.init_device()
    driven.load_model()
    before = driven.determine_available_memory()
    foreign = torch.empty(num_bytes, dtype=torch.uint8, device=session.device).fill_(1)
    session.runtime.synchronize()
    during = driven.determine_available_memory()
    del foreign
    driven.shutdown()
    settle(session)
    total = session.runtime.memory_info(session.device_index).total_bytes
    return {"before": before, "during": during, "total": total}


@procedure("worker.plan_and_counts")
def plan_and_counts(
    session: Session, model: str, dtype: str, prompts: list[list[int]], count: int
) -> dict[str, Any]:
    """What the plan says, what loading told, and what ran, counted where it is called."""
    start = prepared(session, model, dtype, enforce_eager=True)
    counts: Counter[str] = Counter()
    backends: Counter[str] = Counter()
    with counting_backends(start.loaded.platform, backends):
        registrations = counted(start.loaded.registrations, counts)
        driven = make_worker(start, registrations=registrations).up()
        counts.clear()
        backends.clear()
        driven.generate(prompts, count)
        # Kernels for many tokens, and those for few, have their turn as well.
        driven.generate([[2 + index % 90 for index in range(_MANY_TOKENS)]], count)
        ran, ran_backends = dict(counts), dict(backends)
        load, plan = driven.facts["load"], driven.planned.plan
        driven.shutdown()
    planned: dict[str, dict[str, int]] = {}
    for key, by_name in plan.implementations().items():
        planned[key] = dict(by_name)
    return {
        "planned": planned,
        "loaded": {key: dict(by_name) for key, by_name in load.implementations.items()},
        "ran": ran,
        "planned_backends": dict(plan.attention_backends()),
        "loaded_backends": dict(load.attention_backends),
        "ran_backends": ran_backends,
        "registered": [f"{one.key} {one.name}" for one in session.registry.candidates()],
    }


@procedure("worker.layouts")
def layouts(session: Session, model: str, dtype: str) -> dict[str, list[str]]:
    """The KV layout of each group, as planned and as the rank gave it."""
    driven = make_worker(prepared(session, model, dtype))
    driven.init_device()
    driven.load_model()
    planned = [str(one.layout) for one in driven.planned.plan.rank_plan.attention]
    given = [str(layout) for _, layout in driven.facts["groups"]]
    driven.shutdown()
    return {"planned": planned, "given": given}


@procedure("worker.on_device")
def on_device(
    session: Session, model: str, dtype: str, prompt: list[int], count: int, device_index: int
) -> dict[str, Any]:
    """A life on another device than the first; how much each device gave for it."""
    settle(session)
    runtime = session.runtime
    before = [runtime.memory_info(index).free_bytes for index in (0, device_index)]
    start = prepared(session, model, dtype, devices=str(device_index))
    driven = make_worker(start, device_index=device_index)
    try:
        driven.up()
        held = [runtime.memory_info(index).free_bytes for index in (0, device_index)]
        tokens = driven.generate([prompt], count)[0]
        driven.shutdown()
    finally:
        runtime.set_device(session.device_index)
    settle(session)
    return {"tokens": tokens, "taken": [a - b for a, b in zip(before, held, strict=True)]}


@procedure("worker.out_of_memory")
def out_of_memory(
    session: Session, model: str, dtype: str, prompt: list[int], count: int
) -> dict[str, Any]:
    """A large step on a device without free memory, then ordinary ones once there is some."""
    driven = started(session, model, dtype, max_num_batched_tokens=1024)
    settle(session)
    ballast = _fill(session)
    long = [2 + index % 90 for index in range(120)]
    requests = [driven.request(long, 1) for _ in range(8)]
    step = driven.step(new=requests)
    begin = time.monotonic()
    raised = None
    try:
        driven.submit(step).result(10.0)
    except Exception as exc:  # noqa: BLE001 - the judge looks at it
        raised = as_raised(exc)
    seconds = time.monotonic() - begin
    ballast.clear()
    settle(session)
    driven.forget([one.request_id for one in requests])
    tokens: list[int] = []
    after = None
    try:
        tokens = driven.generate([prompt], count)[0]
    except Exception as exc:  # noqa: BLE001 - the judge looks at it
        after = as_raised(exc)
    with suppress(Exception):
        driven.shutdown()
    settle(session)
    return {"raised": raised, "seconds": seconds, "tokens": tokens, "after": after,
            "step": step.step_id}  # fmt: skip


def _fill(session: Session) -> list[torch.Tensor]:
    """All that is free of the device, in pieces that get smaller."""
    held: list[torch.Tensor] = []
    size = _PIECE_BYTES
    while size >= _LEAST_PIECE_BYTES:
        try:
            held.append(torch.empty(size, dtype=torch.uint8, device=session.device))
        except Exception:  # noqa: BLE001 - whatever it is called: nothing is left of this size
            size //= 2
    session.runtime.synchronize()
    return held


@procedure("worker.sleeps")
def sleeps(
    session: Session, model: str, dtype: str, prompt: list[int], count: int
) -> dict[str, Any]:
    """Asleep and awake again; ``None`` under ``freed``: the worker says that it cannot."""
    from dougong.contracts import UnsupportedError

    driven = started(session, model, dtype, num_kv_blocks=512)
    before = session.runtime.memory_info(session.device_index).free_bytes
    try:
        driven.worker.sleep(1)
    except UnsupportedError as exc:
        driven.shutdown()
        return {"freed": None, "reason": str(exc)}
    settle(session)
    freed = session.runtime.memory_info(session.device_index).free_bytes - before
    load = driven.facts["load"]
    state = str(driven.worker.state)
    driven.worker.wake()
    tokens = driven.generate([prompt], count)[0]
    driven.shutdown()
    settle(session)
    return {"freed": freed, "weights": load.weight_bytes, "state": state, "tokens": tokens}


@procedure("worker.made_for_requests")
def made_for_requests(session: Session) -> list[str]:
    """Requests that a backend says yes to, and then cannot make."""
    from dougong.contracts import Claims, KVCacheSpec

    answer = session.plugin.descriptor.probe()
    arch = next((one.arch for one in getattr(answer, "devices", ())), "")
    claims: Claims = session.platform.claims(arch)
    problems = []
    for name, backend in session.backends.items():
        for request in requests_for(claims):
            if not backend.supports(request):
                continue
            try:
                spec = KVCacheSpec(
                    num_kv_heads=request.num_kv_heads,
                    head_dim=request.head_dim,
                    dtype=request.kv_dtype,
                    block_size=request.block_size or claims.kv_block_sizes[0],
                    sliding_window=request.sliding_window,
                )
                layout = backend.kv_layout(spec)
                backend.make_impl(request, request.head_dim**-0.5)
                backend.make_builder(spec, layout, session.device)
            except Exception as exc:  # noqa: BLE001 - a vendor's code; the reason is told
                problems.append(f"{name}: {request}: {type(exc).__name__}: {exc}")
    return problems


def requests_for(claims: Any) -> list[Any]:
    """Kinds of layers that models have."""
    from dataclasses import replace

    from dougong.contracts import AttentionRequest

    plain = AttentionRequest(
        num_heads=8, num_kv_heads=2, head_dim=64, dtype=claims.dtypes[0], kv_dtype=claims.dtypes[0]
    )
    return [
        *(replace(plain, head_dim=size) for size in (16, 24, 64, 80, 128, 200)),
        *(replace(plain, num_heads=12, num_kv_heads=heads) for heads in (1, 3, 12)),
        *(replace(plain, dtype=one, kv_dtype=one) for one in claims.dtypes),
        *(replace(plain, block_size=size) for size in claims.kv_block_sizes),
        replace(plain, sliding_window=128),
        replace(plain, soft_cap=50.0),
        replace(plain, has_sinks=True),
    ]
