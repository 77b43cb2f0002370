"""Checks of the KV cache: which slots a write fills, and that it fills no other."""

from __future__ import annotations

from typing import Any

import torch

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.kit.generate import Draw
from dougong_conformance.kit.paged import PADDING, Span
from dougong_conformance.subject import Subject, SubjectRaised
from dougong_conformance.suite.backend_under_test import BackendUnderTest, backends_of

_NUM_BLOCKS = 6
_FP8 = ("float8_e4m3fn", "float8_e5m2")


def _requests(subject: Subject, judge: Judge, dtype: str) -> list[tuple[BackendUnderTest, Any]]:
    found = []
    for backend in backends_of(subject, judge, dtype):
        request = backend.any_supported()
        if request is not None:
            found.append((backend, request))
    return found


def _write(
    backend: BackendUnderTest, request: dict[str, Any], slots: list[list[int]], index: int = 0
) -> tuple[list[dict[str, list[torch.Tensor]]], int]:
    """A cache before and after writes of random rows, and its reserved blocks."""
    layout = backend.subject.call("attention.layout", backend=backend.name, request=request)
    reserved = layout["reserved_blocks"]
    shift = reserved * request["block_size"]
    draw = Draw("kv.write", index, getattr(torch, request["dtype"]))
    writes = []
    for group in slots:
        shape = (len(group), request["num_kv_heads"], request["head_dim"])
        moved = [slot if slot == PADDING else slot + shift for slot in group]
        writes.append(
            {"k": draw.normal(*shape), "v": draw.normal(*shape), "slots": torch.tensor(moved)}
        )
    try:
        states = backend.subject.call(
            "kv.write",
            backend=backend.name,
            request=request,
            num_blocks=_NUM_BLOCKS + reserved,
            writes=writes,
        )
    except SubjectRaised as exc:
        backend.judge.fail(
            f"write_kv of {backend.name} in {backend.dtype} raised {exc.raised.kind}: "
            f"{exc.raised.message}"
        )
    return states, reserved


def _changed(
    before: dict[str, list[torch.Tensor]], after: dict[str, list[torch.Tensor]]
) -> list[set[int]]:
    """Per buffer, the blocks that have another byte."""
    return [
        set((a != b).any(dim=1).nonzero().flatten().tolist())
        for a, b in zip(before["blocks"], after["blocks"], strict=True)
    ]


@check("kv.padding_slots", per_dtype=True)
def padding_slots(subject: Subject, judge: Judge, dtype: str) -> None:
    """Rows of slot -1 are written nowhere."""
    for backend, request in _requests(subject, judge, dtype):
        states, reserved = _write(backend, request, [[PADDING, PADDING, PADDING]])
        # What the backend does in blocks that it keeps for itself is its own affair.
        changed = set().union(*_changed(states[0], states[1])) - set(range(reserved))
        judge.require(
            not changed,
            f"write_kv of {backend.name} in {dtype} wrote rows whose slot is -1, into blocks "
            f"{changed}",
        )
        _check_gaps(backend, states)


@check("kv.only_named_blocks", per_dtype=True)
def only_named_blocks(subject: Subject, judge: Judge, dtype: str) -> None:
    """A write changes the blocks of its slots, and of no other block a byte."""
    for backend, request in _requests(subject, judge, dtype):
        size = request["block_size"]
        slots = [4 * size + 3, size, PADDING, size - 1 + size, 4 * size + 2]
        states, reserved = _write(backend, request, [slots])
        named = {1 + reserved, 4 + reserved}
        allowed = named | set(range(reserved))
        changed = _changed(states[0], states[1])
        judge.require(
            all(found <= allowed for found in changed),
            f"write_kv of {backend.name} in {dtype} changed blocks {changed}; slots lie in {named}",
        )
        judge.require(
            set().union(*changed) >= named,
            f"write_kv of {backend.name} in {dtype} left blocks of {named} as they were: {changed}",
        )
        _check_gaps(backend, states)


@check("kv.neighbours", per_dtype=True)
def neighbours(subject: Subject, judge: Judge, dtype: str) -> None:
    """Tokens of a block that were written before keep their numbers, one token after the other."""
    for backend, request in _requests(subject, judge, dtype):
        size = request["block_size"]
        batch = backend.batch(request, [Span(size + 6), Span(size - 2)], "kv.neighbours")
        # Token by token, as decoding does it, the second sequence between.
        writes = []
        for at in range(size + 5):
            rows = [(0, at)] + ([(1, at)] if at < size - 3 else [])
            writes.append(
                {
                    "k": torch.cat([batch.keys[i][t : t + 1] for i, t in rows]),
                    "v": torch.cat([batch.values[i][t : t + 1] for i, t in rows]),
                    "slots": torch.cat([batch.slots(i, t, t + 1) for i, t in rows]),
                }
            )
        backend.check_batch(request, batch, writes=writes)


@check("kv.scattered_slots", per_dtype=True)
def scattered_slots(subject: Subject, judge: Judge, dtype: str) -> None:
    """Tokens of one call may go anywhere, in any order; keys and values keep apart."""
    for backend, request in _requests(subject, judge, dtype):
        size = request["block_size"]
        spans = [Span(2 * size + 1), Span(size + 2), Span(3)]
        for index, is_split in enumerate((True, False)):
            batch = backend.batch(request, spans, "kv.scattered_slots", index)
            whole = _joined(batch.writes())
            order = Draw("kv.scattered_slots", 10 + index).permutation(len(whole["slots"]))
            mixed = {name: rows[order] for name, rows in whole.items()}
            backend.check_batch(request, batch, writes=[mixed], is_split=is_split)


@check("kv.overwritten_slots", per_dtype=True)
def overwritten_slots(subject: Subject, judge: Judge, dtype: str) -> None:
    """A block that belonged to another sequence is written anew; nothing of it is left."""
    for backend, request in _requests(subject, judge, dtype):
        batch = backend.batch(request, [Span(request["block_size"] + 5)], "kv.overwritten_slots")
        old = backend.batch(request, [Span(request["block_size"] + 5)], "kv.overwritten_slots", 1)
        first = [{**one, "k": two["k"], "v": two["v"]} for one, two in _pairs(batch, old)]
        backend.check_batch(request, batch, writes=[*first, *batch.writes()])


@check("kv.dtypes", per_dtype=True)
def dtypes(subject: Subject, judge: Judge, dtype: str) -> None:
    """Every cache dtype that the platform claims and a backend takes."""
    for kv_dtype in subject.facts.claims["kv_dtypes"]:
        taken = 0
        for backend in backends_of(subject, judge, dtype):
            request = backend.first_supported(kv_dtype=kv_dtype, num_heads=2, num_kv_heads=1)
            if request is None:
                continue
            taken += 1
            batch = backend.batch(request, [Span(19), Span(8, 3)], f"kv.dtypes {kv_dtype}")
            if kv_dtype in _FP8:
                _make_exact(batch, kv_dtype)
            backend.check_batch(request, batch)
        if not taken:
            judge.warn(f"no backend stores {kv_dtype} for {dtype}, which the platform claims")


@check("kv.saturation", per_dtype=True)
def saturation(subject: Subject, judge: Judge, dtype: str) -> None:
    """What is beyond the largest number of an 8-bit cache is cut to it, never NaN."""
    claimed = [one for one in subject.facts.claims["kv_dtypes"] if one in _FP8]
    if not claimed:
        judge.not_claimed("no cache of 8-bit floats is claimed")
    taken = 0
    for kv_dtype in claimed:
        for backend in backends_of(subject, judge, dtype):
            request = backend.first_supported(kv_dtype=kv_dtype, num_heads=2, num_kv_heads=1)
            if request is None:
                continue
            batch = backend.batch(request, [Span(9), Span(6, 2)], f"kv.saturation {kv_dtype}")
            _make_exact(batch, kv_dtype)
            largest = torch.finfo(getattr(torch, kv_dtype)).max
            for values in batch.values:
                values[0] = min(largest * 1.1, 60000.0)
                values[2] = -min(largest * 1.1, 60000.0)
            backend.check_batch(request, batch)
            taken += 1
    if not taken:
        judge.not_claimed(f"no backend stores {', '.join(claimed)} for {dtype}")


def _make_exact(batch: Any, kv_dtype: str) -> None:
    """Keys and values that the cache's dtype holds exactly."""
    narrow = getattr(torch, kv_dtype)
    for rows in (batch.keys, batch.values):
        for one in rows:
            one.copy_(one.float().to(narrow).to(one.dtype))


def _check_gaps(backend: BackendUnderTest, states: list[dict[str, list[torch.Tensor]]]) -> None:
    """Bytes between blocks belong to nobody."""
    for before, after, blocks, others in zip(
        states[0]["everything"],
        states[1]["everything"],
        states[0]["blocks"],
        states[1]["blocks"],
        strict=True,
    ):
        inside = int((blocks != others).sum())
        everywhere = int((before != after).sum())
        backend.judge.require(
            inside == everywhere,
            f"write_kv of {backend.name} wrote {everywhere - inside} bytes between blocks",
        )


def _joined(writes: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {name: torch.cat([one[name] for one in writes]) for name in ("k", "v", "slots")}


def _pairs(batch: Any, old: Any) -> list[tuple[Any, Any]]:
    return list(zip(batch.writes(), old.writes(), strict=True))
