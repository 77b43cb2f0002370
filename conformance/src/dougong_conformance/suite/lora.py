"""Checks of adapters at the level of the contract, where the platform names a wrapper."""

from __future__ import annotations

from typing import Any

import torch

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.kit.generate import Draw
from dougong_conformance.kit.oracle.lora import add_lora
from dougong_conformance.subject import Subject, SubjectRaised
from dougong_conformance.suite.op_under_test import for_device

_MIXED = [0, -1, 2, 1, -1, 0]


def _call(draw: Draw, num_tokens: int, scale: float, rank: int = 4) -> dict[str, Any]:
    return {
        "out": draw.normal(num_tokens, 24),
        "x": draw.normal(num_tokens, 16),
        "lora_a": draw.normal(3, rank, 16, scale=0.25),
        "lora_b": draw.normal(3, 24, rank, scale=0.5),
        "scale": scale,
    }


def _check(subject: Subject, judge: Judge, steps: list[tuple[list[int], list[Any]]]) -> None:
    if not subject.facts.has_lora:
        judge.not_claimed("the platform names no LoRA wrapper")
    given: list[dict[str, Any]] = [
        {"indices": torch.tensor(indices, dtype=torch.int64), "calls": calls}
        for indices, calls in steps
    ]
    try:
        found = iter(subject.call("lora.run", steps=given))
    except SubjectRaised as exc:
        judge.fail(f"the LoRA wrapper raised {exc.raised.kind}: {exc.raised.message}")
    for step in given:
        for call in step["calls"]:
            expected = add_lora(**call, indices=step["indices"])
            out = next(found)
            judge.close(out, for_device(expected, subject), name="lora")
            plain = step["indices"] < 0
            judge.exact(out[plain], call["out"][plain], "rows without an adapter")


@check("lora.mixed_batch", per_dtype=True)
def mixed_batch(subject: Subject, judge: Judge, dtype: str) -> None:
    """Each token uses its own adapter; -1 uses none and keeps its bits."""
    draw = Draw("lora.mixed_batch", 0, getattr(torch, dtype))
    _check(
        subject,
        judge,
        [
            (_MIXED, [_call(draw, 6, 1.0)]),
            ([-1, -1, -1], [_call(draw, 3, 1.0)]),
            ([], [_call(draw, 0, 1.0)]),
        ],
    )


@check("lora.scaling", per_dtype=True)
def scaling(subject: Subject, judge: Judge, dtype: str) -> None:
    """The scale of a call is applied once."""
    draw = Draw("lora.scaling", 0, getattr(torch, dtype))
    _check(subject, judge, [(_MIXED, [_call(draw, 6, 2.0), _call(draw, 6, 0.5)])])


@check("lora.updates", per_dtype=True)
def updates(subject: Subject, judge: Judge, dtype: str) -> None:
    """A step's indices hold for all its calls and end with it; a slot may have another rank."""
    draw = Draw("lora.updates", 0, getattr(torch, dtype))
    _check(
        subject,
        judge,
        [
            ([0, 0, 2], [_call(draw, 3, 1.0), _call(draw, 3, 1.0)]),
            ([2, -1, 1], [_call(draw, 3, 1.0, rank=2)]),
            ([-1, -1, -1], [_call(draw, 3, 1.0)]),
            ([1, 1, 0], [_call(draw, 3, 1.0, rank=8)]),
        ],
    )
