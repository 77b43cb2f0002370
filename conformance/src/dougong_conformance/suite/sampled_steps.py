"""Steps of sampling as checks ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dougong_conformance.judging import Judge
from dougong_conformance.subject import Subject, SubjectRaised


def random_rows(
    rows: list[int], seeds: list[int], positions: list[int], vocab_size: int
) -> dict[str, list[Any]]:
    """Rows that draw at a temperature of 1, without a cut."""
    count = len(rows)
    return {
        "rows": rows,
        "seeds": seeds,
        "positions": positions,
        "temperature": [1.0] * count,
        "top_k": [vocab_size] * count,
        "top_p": [1.0] * count,
        "has_cuts": [],
    }


def drawn_tokens(
    subject: Subject,
    judge: Judge,
    logits: torch.Tensor,
    *,
    seeds: list[int],
    positions: list[int],
    temperature: float | Sequence[float] = 1.0,
    top_k: list[int] | None = None,
    top_p: list[float] | None = None,
    min_p: list[float] | None = None,
) -> torch.Tensor:
    """Tokens of a step in which every row draws."""
    random = random_rows(list(range(len(logits))), seeds, positions, logits.shape[1])
    given = [temperature] * len(logits) if isinstance(temperature, float) else list(temperature)
    random["temperature"] = given
    if top_k is not None and top_p is not None:
        random |= {"top_k": top_k, "top_p": top_p, "has_cuts": [True]}
    if min_p is not None:
        random["min_p"] = min_p
    (found,) = sampled(subject, judge, [logits], [random])
    drawn: torch.Tensor = found["token_ids"]
    return drawn


def sampled(
    subject: Subject,
    judge: Judge,
    logits: list[torch.Tensor],
    random: list[dict[str, list[Any]]] | None = None,
    **more: Any,
) -> list[dict[str, Any]]:
    """Steps of the core's sampler, with the plugin's implementations; see the driver."""
    try:
        found: list[dict[str, Any]] = subject.call(
            "sampling.sample",
            logits=logits,
            dtype=subject.facts.dtypes[0],
            random=random,
            **more,
        )
    except SubjectRaised as exc:
        judge.fail(f"sampling raised {exc.raised.kind}: {exc.raised.message}")
    for one in found:
        judge.require(
            one["token_ids"].dtype is torch.int64, f"token ids are {one['token_ids'].dtype}"
        )
    return found


def edited(subject: Subject, judge: Judge, logits: torch.Tensor, **edits: Any) -> torch.Tensor:
    """Logits as a step's requests change them before a token is chosen."""
    try:
        found: torch.Tensor = subject.call(
            "sampling.edited", logits=logits, dtype=subject.facts.dtypes[0], **edits
        )
    except SubjectRaised as exc:
        judge.fail(f"editing logits raised {exc.raised.kind}: {exc.raised.message}")
    return found
