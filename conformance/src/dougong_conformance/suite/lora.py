"""Checks of adapters at the level of the contract, where the platform names a wrapper."""

from __future__ import annotations

from typing import Any

import torch

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.kit.generate import Draw
from dougong_conformance.kit.oracle.lora import add_lora
from dougong_conformance.kit.place import outside, part_of, within
from dougong_conformance.subject import Subject, SubjectRaised
from dougong_conformance.suite.op_under_test import for_device

_MIXED = [0, -1, 2, 1, -1, 0]
_MOST_TOKENS = 48
_LARGE = 300.0  # whoever reads such a slot is far off, and no sum of any dtype overflows


@check("lora.mixed_batch", per_dtype=True)
def mixed_batch(subject: Subject, judge: Judge, dtype: str) -> None:
    """Each token uses its own adapter; -1 uses none and keeps its bits."""
    draw = _draw("mixed_batch", dtype)
    _check(
        subject,
        judge,
        [
            (_MIXED, [_call(draw, 6)]),
            ([-1, -1, -1], [_call(draw, 3)]),
            ([], [_call(draw, 0)]),
        ],
    )


@check("lora.scaling", per_dtype=True)
def scaling(subject: Subject, judge: Judge, dtype: str) -> None:
    """The scale of a call is applied once."""
    draw = _draw("scaling", dtype)
    _check(subject, judge, [(_MIXED, [_call(draw, 6, scale=2.0), _call(draw, 6, scale=0.5)])])


@check("lora.updates", per_dtype=True)
def updates(subject: Subject, judge: Judge, dtype: str) -> None:
    """A step's indices hold for all its calls and end with it; a slot may have another rank."""
    draw = _draw("updates", dtype)
    _check(
        subject,
        judge,
        [
            ([0, 1, 2, 2], [_call(draw, 4), _call(draw, 4)]),
            ([2, -1, 1, 0], [_call(draw, 4, rank=2)]),
            ([-1, -1, -1, -1], [_call(draw, 4)]),
            ([1, 1, 0, 2], [_call(draw, 4, rank=8)]),
        ],
    )


@check("lora.shapes", per_dtype=True)
def shapes(subject: Subject, judge: Judge, dtype: str) -> None:
    """Widths, ranks and numbers of tokens and slots that are no multiples of anything."""
    draw = _draw("shapes", dtype)
    for tokens, width, rows, rank, slots in (
        (1, 33, 100, 1, 1),
        (7, 100, 33, 3, 2),
        (17, 64, 7, 17, 5),
        (_MOST_TOKENS, 48, 48, 8, 3),
        (2, 1000, 64, 64, 8),
    ):
        indices = draw.integers(-1, slots, tokens).tolist()
        call = _call(draw, tokens, rank=rank, slots=slots, width=width, rows=rows)
        _check(subject, judge, [(indices, [call])], slots=slots)


@check("lora.in_place", per_dtype=True)
def in_place(subject: Subject, judge: Judge, dtype: str) -> None:
    """Columns of a wider output: what lies beside them stays, and so do the other arguments."""
    draw = _draw("in_place", dtype)
    calls = []
    for before, after in ((0, 8), (5, 3), (24, 0)):
        call = _call(draw, 6)
        calls.append({**call, "out": within(call["out"], 1, before, after)})
    _check(subject, judge, [(_MIXED, calls)])


@check("lora.other_slots", per_dtype=True)
def other_slots(subject: Subject, judge: Judge, dtype: str) -> None:
    """Slots that no token of the step uses add nothing, whatever finite numbers they hold."""
    draw = _draw("other_slots", dtype)
    steps = []
    for indices in ([3, -1, 3, 3, -1], [5, 1, 1, -1, 5], [4, 4, 4, 4, 4], [-1, -1, 0, -1, -1]):
        call = _call(draw, len(indices), slots=6)
        for slot in set(range(6)) - set(indices):
            call["lora_a"][slot] *= _LARGE
            call["lora_b"][slot] *= _LARGE
        steps.append((indices, [call]))
    _check(subject, judge, steps, slots=6)


@check("lora.replays")
def replays(subject: Subject, judge: Judge) -> None:
    """A captured call reads the adapters of the step in which it is replayed."""
    if not subject.facts.has_graph_runner:
        judge.not_claimed("graph_capture is not claimed")
    _claimed(subject, judge)
    draw = Draw("lora.replays", 0, getattr(torch, subject.facts.dtypes[0]))
    call = _call(draw, 6)
    steps = [torch.tensor(one) for one in (_MIXED, [2, 2, -1, 0, 1, -1], [-1] * 6, [1] * 6)]
    try:
        found = subject.call("lora.replays", max_loras=3, call=call, steps=steps)
    except SubjectRaised as exc:
        judge.fail(f"a captured call of the LoRA wrapper raised {exc.raised.kind}: "
                   f"{exc.raised.message}")  # fmt: skip
    judge.require(found is not None, "graph_capture is claimed, and no runner can be made")
    for indices, out in zip(steps, found, strict=True):
        expected = add_lora(**call, indices=indices)
        judge.close(out, for_device(expected, subject), name="lora, replayed")
        judge.exact(out[indices < 0], call["out"][indices < 0], "replayed rows without an adapter")


def _draw(name: str, dtype: str) -> Draw:
    return Draw(f"lora.{name}", 0, getattr(torch, dtype))


def _call(
    draw: Draw,
    num_tokens: int,
    *,
    scale: float = 1.0,
    rank: int = 4,
    slots: int = 3,
    width: int = 16,
    rows: int = 24,
) -> dict[str, Any]:
    return {
        "out": draw.normal(num_tokens, rows),
        "x": draw.normal(num_tokens, width),
        "lora_a": draw.normal(slots, rank, width, scale=width**-0.5),
        "lora_b": draw.normal(slots, rows, rank, scale=rank**-0.5),
        "scale": scale,
    }


def _claimed(subject: Subject, judge: Judge) -> None:
    if not subject.facts.has_lora:
        judge.not_claimed("the platform names no LoRA wrapper")


def _check(
    subject: Subject, judge: Judge, steps: list[tuple[list[int], list[Any]]], *, slots: int = 3
) -> None:
    _claimed(subject, judge)
    given: list[dict[str, Any]] = [
        {"indices": torch.tensor(indices, dtype=torch.int64), "calls": calls}
        for indices, calls in steps
    ]
    try:
        found = subject.call("lora.run", max_loras=slots, max_num_tokens=_MOST_TOKENS, steps=given)
    except SubjectRaised as exc:
        judge.fail(f"the LoRA wrapper raised {exc.raised.kind}: {exc.raised.message}")
    answers = iter(found)
    for step in given:
        for call in step["calls"]:
            _check_one(subject, judge, step["indices"], call, next(answers))


def _check_one(
    subject: Subject,
    judge: Judge,
    indices: torch.Tensor,
    call: dict[str, Any],
    after: dict[str, torch.Tensor],
) -> None:
    given, out = call["out"], after["out"]
    if isinstance(given, dict):
        judge.exact(outside(given, out), outside(given, given["base"]), "columns beside the output")
        out = part_of({**given, "base": out}).contiguous()
        given = part_of(given).contiguous()
    expected = add_lora(**{**call, "out": given}, indices=indices)
    judge.close(out, for_device(expected, subject), name="lora")
    plain = indices < 0
    judge.exact(out[plain], given[plain], "rows without an adapter")
    for name in ("x", "lora_a", "lora_b"):
        judge.exact(after[name], call[name], f"{name}, which a call may not overwrite,")
