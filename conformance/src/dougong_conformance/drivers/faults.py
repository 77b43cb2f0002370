"""Faults on demand, where the plugin offers them, and what a worker makes of them.

A plugin offers them in a module ``conformance`` beside its platform's: ``KINDS`` lists what
``inject(kind, device_index, **options)`` can arm; ``clear(device_index)`` makes the device well.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from dougong_conformance.drivers.discovery import conformance_module
from dougong_conformance.drivers.memory import settle
from dougong_conformance.drivers.worker import started
from dougong_conformance.local import as_raised
from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session

_MOST_S = 12.0


@procedure("faults.kinds")
def kinds(session: Session) -> list[str]:
    """What can be injected; empty: the plugin offers nothing."""
    return list(getattr(conformance_module(session), "KINDS", ()))


@procedure("faults.in_step")
def in_step(
    session: Session,
    model: str,
    dtype: str,
    prompt: list[int],
    count: int,
    kind: str,
    keeps_worker: bool = False,
) -> dict[str, Any]:
    """A step that meets a fault; then ordinary steps of the same worker, or of a new one.

    Returns:
        ``raised`` and ``seconds`` of the step; ``tokens`` of the ordinary steps, or ``after``: what
        they raised; ``lost``: bytes of device memory that are gone in the end.
    """
    hooks: Any = conformance_module(session)
    settle(session)
    runtime, index = session.runtime, session.device_index
    before = runtime.memory_info(index).free_bytes
    driven = started(session, model, dtype, enforce_eager=True)
    driven.generate([prompt], 2)
    raised = after = None
    tokens: list[int] = []
    request = driven.request(prompt, count)
    begin = time.monotonic()
    try:
        hooks.inject(kind, index)
        driven.submit(driven.step(new=[request])).result(_MOST_S)
    except Exception as exc:  # noqa: BLE001 - the judge looks at it
        raised = as_raised(exc)
    seconds = time.monotonic() - begin
    hooks.clear(index)
    driven.forget([request.request_id])
    try:
        if not keeps_worker:
            with suppress(Exception):
                driven.shutdown()
            driven = started(session, model, dtype, enforce_eager=True)
        tokens = driven.generate([prompt], count)[0]
    except Exception as exc:  # noqa: BLE001 - the judge looks at it
        after = as_raised(exc)
    with suppress(Exception):
        driven.shutdown()
    del driven
    settle(session)
    lost = before - runtime.memory_info(index).free_bytes
    return {"raised": raised, "seconds": seconds, "tokens": tokens, "after": after, "lost": lost}


@procedure("faults.slow_step")
def slow_step(
    session: Session, model: str, dtype: str, prompt: list[int], seconds: float
) -> dict[str, Any]:
    """A step on a slow device, asked for its result with little patience, then with much."""
    hooks: Any = conformance_module(session)
    driven = started(session, model, dtype, enforce_eager=True)
    driven.generate([prompt], 2)
    request = driven.request(prompt, 2)
    raised = None
    hooks.inject("slow", session.device_index, seconds=seconds)
    begin = time.monotonic()
    handle = driven.submit(driven.step(new=[request]))
    launched = time.monotonic() - begin
    try:
        handle.result(seconds / 10)
    except Exception as exc:  # noqa: BLE001 - the judge looks at it
        raised = as_raised(exc)
    waited = time.monotonic() - begin - launched
    output = handle.result(_MOST_S)
    hooks.clear(session.device_index)
    driven.shutdown()
    return {
        "raised": raised,
        "launch_s": launched,
        "waited_s": waited,
        "tokens": [list(one) for one in output.sampled_token_ids],
    }
