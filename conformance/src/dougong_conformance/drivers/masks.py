"""A worker that is told which tokens are allowed, without a grammar and without an engine."""

from __future__ import annotations

from typing import Any

import torch
from dougong.contracts import GrammarMask

from dougong_conformance.drivers.worker import started
from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session


@procedure("worker.masked")
def masked(
    session: Session,
    model: str,
    dtype: str,
    prompts: list[list[int]],
    steps: list[dict[str, Any]],
) -> list[list[int]]:
    """Greedy steps of requests that begin together.

    Args:
        session: The plugin.
        model: Of the zoo.
        dtype: Compute dtype.
        prompts: One per request.
        steps: Each ``requests`` that have a mask, in any order, and their ``bitmask``; empty: no
            mask at all.

    Returns:
        Per step the token of each request.
    """
    driven = started(session, model, dtype)
    requests = [driven.request(prompt, len(steps)) for prompt in prompts]
    names = [one.request_id for one in requests]
    found: list[list[int]] = []
    try:
        for number, step in enumerate(steps):
            message = driven.step(new=[] if number else requests, cached=names if number else [])
            output = driven.worker.execute_model(message, _mask(names, step))
            tokens = dict(zip(output.req_ids, output.sampled_token_ids, strict=True))
            found.append([tokens[name][0] for name in names])
    finally:
        driven.shutdown()
    return found


def _mask(names: list[str], step: dict[str, Any]) -> GrammarMask | None:
    if not step["requests"]:
        return None
    bitmask: torch.Tensor = step["bitmask"]
    return GrammarMask([names[index] for index in step["requests"]], bitmask.contiguous())
