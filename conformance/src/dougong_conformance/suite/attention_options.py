"""Checks of what a backend may take or leave: windows, caps, invariance; claims asked both ways."""

from __future__ import annotations

from typing import Any

import torch

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.kit.metric import normalised_error
from dougong_conformance.kit.paged import Span
from dougong_conformance.subject import Subject, SubjectRaised
from dougong_conformance.suite.backend_under_test import (
    BackendUnderTest,
    backends_of,
    terms_of,
)
from dougong_conformance.suite.op_under_test import BATCH_INVARIANT


@check("attention.sliding_window", per_dtype=True)
def sliding_window(subject: Subject, judge: Judge, dtype: str) -> None:
    """A query sees so many tokens, itself included."""
    taken = 0
    for backend in backends_of(subject, judge, dtype):
        size = backend.block_sizes[0]
        for index, window in enumerate((1, 7, size, 4 * size)):
            request = backend.first_supported(num_heads=2, num_kv_heads=1, sliding_window=window)
            if request is not None:
                spans = [Span(2 * size + 8, 5), Span(size + 4), Span(6, 6)]
                backend.check(request, spans, "attention.sliding_window", index)
                taken += 1
    if not taken:
        judge.not_claimed(f"no backend takes a sliding window in {dtype}")


@check("attention.soft_cap", per_dtype=True)
def soft_cap(subject: Subject, judge: Judge, dtype: str) -> None:
    """Scores are capped before anything is masked."""
    taken = 0
    for backend in backends_of(subject, judge, dtype):
        # A wide cap on large scores, and one so narrow that what is masked must not reach it.
        for index, (cap, factor) in enumerate(((20.0, 10.0), (2.0, 1.0))):
            request = backend.first_supported(num_heads=2, num_kv_heads=1, soft_cap=cap)
            if request is None:
                continue
            batch = backend.batch(request, [Span(30, 30), Span(21)], "attention.soft_cap", index)
            batch.queries = [one * factor for one in batch.queries]
            backend.check_batch(request, batch)
            taken += 1
    if not taken:
        judge.not_claimed(f"no backend takes a cap on scores in {dtype}")


@check("attention.batch_invariance", per_dtype=True)
def batch_invariance(subject: Subject, judge: Judge, dtype: str) -> None:
    """Where it is claimed, a sequence's bits are the same alone and among others."""
    names = {BATCH_INVARIANT, f"{BATCH_INVARIANT}.{dtype}"}
    is_claimed = not names.isdisjoint(subject.facts.features)
    is_kept = True
    for backend in backends_of(subject, judge, dtype):
        size = backend.block_sizes[0]
        request = backend.any_supported()
        if request is None:
            continue
        new = {"mixed": (1, 1, 1, 4), "decode": (1, 1, 1, 1), "prefill": (3, 7, 5, 4)}
        lengths = (size + 3, 2 * size + 5, 5, size + 9)
        spans = list(map(Span, lengths, new[request["phase"]]))
        batch = backend.batch(request, spans, "attention.batch_invariance")
        together = backend.run(request, batch, [batch.step()])
        whole = _rows(together, 0)
        at = 0
        for index, span in enumerate(spans):
            alone = _rows(backend.run(request, batch, [batch.step([index])]), 0)
            is_same = torch.equal(alone, whole[at : at + span.query])
            is_kept = is_kept and is_same
            judge.require(
                is_same or not is_claimed,
                f"attention by {backend.name} in {dtype}: sequence {index} has other bits alone "
                "than among others, and batch invariance is claimed",
            )
            at += span.query
    if not is_claimed:
        if is_kept:
            judge.warn(f"attention is batch invariant in {dtype}; claim {BATCH_INVARIANT}.{dtype}")
        judge.not_claimed(f"batch invariance is not claimed in {dtype}")


@check("attention.claims", per_dtype=True)
def claims(subject: Subject, judge: Judge, dtype: str) -> None:
    """A yes is right, a no is refused or right, and both come with the same answer every time."""
    for backend in backends_of(subject, judge, dtype):
        _check_answers(backend)
        _check_latent(backend)
        for changed in (
            {"head_dim": 20},
            {"head_dim": 512},
            {"block_size": 7},
            {"sliding_window": 5},
            {"soft_cap": 20.0},
            {"kv_dtype": "float8_e4m3fn"},
            {"kv_dtype": "float32" if dtype != "float32" else "bfloat16"},
        ):
            request = backend.request(num_heads=2, num_kv_heads=1, **changed)
            (is_taken,) = backend.supports([request])
            if is_taken:
                if request["kv_dtype"] in subject.facts.claims["kv_dtypes"]:
                    backend.check(request, [Span(19), Span(5, 5)], "attention.claims")
            else:
                _refused_or_right(backend, request, changed)


@check("attention.layouts", per_dtype=True)
def layouts(subject: Subject, judge: Judge, dtype: str) -> None:
    """A layout has the block size that was asked for, room for every token, and stays the same."""
    for backend in backends_of(subject, judge, dtype):
        for size in backend.block_sizes:
            request = backend.any_supported(block_size=size)
            if request is None:
                judge.fail(
                    f"attention backend {backend.name} states blocks of {size} tokens and takes no "
                    "layer with them"
                )
            found = subject.call("attention.layout", backend=backend.name, request=request)
            again = subject.call("attention.layout", backend=backend.name, request=request)
            judge.require(found == again, f"{backend.name} gives two layouts for one layer")
            _check_layout(judge, backend, found, request)


@check("attention.workspace", per_dtype=True)
def workspace(subject: Subject, judge: Judge, dtype: str) -> None:
    """What is asked for beside the cache is a number of bytes that never shrinks with the step."""
    for backend in backends_of(subject, judge, dtype):
        request = backend.any_supported()
        if request is None:
            continue
        counts = [1, 2, 64, 2048]
        found = subject.call(
            "attention.workspace", backend=backend.name, request=request, num_tokens=counts
        )
        judge.require(
            all(type(one) is int and one >= 0 for one in found) and found == sorted(found),
            f"workspace_bytes of {backend.name} for {counts} tokens is {found}; it must be whole, "
            "not negative and not shrink",
        )
        judge.require(
            found[-1] < 1 << 40, f"{backend.name} asks for {found[-1]} bytes beside the cache"
        )


def _check_answers(backend: BackendUnderTest) -> None:
    requests = [backend.request(head_dim=size, block_size=None) for size in backend.head_sizes]
    first, second = backend.supports(requests), backend.supports(requests)
    backend.judge.require(
        first == second, f"supports() of {backend.name} gives another answer when asked again"
    )


def _check_latent(backend: BackendUnderTest) -> None:
    request = backend.request(is_mla=True, kv_lora_rank=32, rope_head_dim=16)
    (is_taken,) = backend.supports([request])
    try:
        answer = backend.subject.call("attention.latent", backend=backend.name, request=request)
    except SubjectRaised as exc:
        backend.judge.fail(
            f"make_mla_impl of {backend.name} raised {exc.raised.kind}, not UnsupportedError: "
            f"{exc.raised.message}"
        )
    if is_taken:
        backend.judge.require(
            answer["made"] == ["write_kv", "forward"],
            f"{backend.name} says yes to latent attention and makes none: {answer['refused']}",
        )


def _refused_or_right(
    backend: BackendUnderTest, request: dict[str, Any], changed: dict[str, Any]
) -> None:
    """What is not taken and asked for all the same must raise, or be right."""
    spans = [Span(11), Span(5, 5)]
    try:
        batch = backend.batch(request, spans, "attention.claims", 1)
        done = backend.subject.call(
            "attention.run",
            backend=backend.name,
            request=request,
            scale=request["head_dim"] ** -0.5,
            num_blocks=batch.num_blocks,
            writes=batch.writes(),
            steps=[batch.step()],
        )
    except SubjectRaised:
        return
    out = _rows(done, 0)
    expected = batch.expected(terms_of(request))
    error = float(normalised_error(out, expected).max())
    backend.judge.at_most(
        f"attention by {backend.name}, not taking {changed} and not refusing: max error", error, 3.0
    )
    backend.judge.warn(f"{backend.name} says no to {changed} and computes it rightly; claim it")


def _check_layout(
    judge: Judge, backend: BackendUnderTest, found: dict[str, Any], request: dict[str, Any]
) -> None:
    size, name = request["block_size"], backend.name
    judge.require(
        size in found["block_sizes"],
        f"{name} takes blocks of {size} tokens and its layout says {found['block_sizes']}",
    )
    judge.require(
        found["slot_dtype"] in ("int32", "int64"), f"{name} has {found['slot_dtype']} slots"
    )
    judge.require(
        found["reserved_blocks"] >= 0, f"{name} reserves {found['reserved_blocks']} blocks"
    )
    needed = 2 * size * request["num_kv_heads"] * request["head_dim"]
    stored = sum(
        int(torch.tensor(one["block_shape"]).prod())
        for one in found["buffers"]
        if one["dtype"] == request["kv_dtype"]
    )
    judge.require(
        stored >= needed,
        f"a block of {name} holds {stored} numbers of {request['kv_dtype']}; keys and values of "
        f"{size} tokens are {needed}",
    )


def _rows(done: dict[str, Any], at: int) -> torch.Tensor:
    guard = done["guard"]
    rows: torch.Tensor = done["outs"][at][guard:-guard]
    return rows
