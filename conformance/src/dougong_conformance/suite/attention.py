"""Checks of attention that every backend must pass: the numbers, for all it takes."""

from __future__ import annotations

from collections.abc import Sequence

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.kit.generate import Draw
from dougong_conformance.kit.paged import Span
from dougong_conformance.subject import Subject
from dougong_conformance.suite.backend_under_test import (
    HEADS,
    BackendUnderTest,
    backends_of,
    phase_of,
)


def _lengths(block_size: int) -> tuple[int, ...]:
    """Contexts around the ends of blocks."""
    return (1, block_size - 1, block_size, block_size + 1, 2 * block_size + 1, 3 * block_size - 1)


def _check_heads(
    backend: BackendUnderTest, spans: Sequence[Span], id: str, *, phase: str = ""
) -> int:
    """Every sharing of heads, in the phase that the batch is; gives how many were taken."""
    taken = 0
    for index, (heads, kv_heads) in enumerate(HEADS):
        request = backend.first_supported(
            num_heads=heads, num_kv_heads=kv_heads, phase=phase or phase_of(spans)
        )
        if request is not None:
            backend.check(request, spans, id, index, is_split=index != 1)
            taken += 1
    return taken


@check("attention.decode", per_dtype=True)
def decode(subject: Subject, judge: Judge, dtype: str) -> None:
    """One query per sequence, contexts that end anywhere, blocks in any order."""
    taken = 0
    for backend in backends_of(subject, judge, dtype):
        spans = [Span(length) for length in _lengths(backend.block_sizes[0])]
        taken += _check_heads(backend, spans, "attention.decode")
    judge.require(taken > 0, f"no backend takes decode steps in {dtype}")


@check("attention.prefill", per_dtype=True)
def prefill(subject: Subject, judge: Judge, dtype: str) -> None:
    """Whole prompts, from one token more than a block to several blocks."""
    taken = 0
    for backend in backends_of(subject, judge, dtype):
        size = backend.block_sizes[0]
        spans = [Span(length, length) for length in (size + 1, 7, 2 * size - 1)]
        taken += _check_heads(backend, spans, "attention.prefill")
    judge.require(taken > 0, f"no backend takes prefill steps in {dtype}")


@check("attention.chunked", per_dtype=True)
def chunked(subject: Subject, judge: Judge, dtype: str) -> None:
    """A chunk in the middle of a prompt, a whole prompt and single tokens in one step."""
    taken = 0
    for backend in backends_of(subject, judge, dtype):
        size = backend.block_sizes[0]
        spans = [
            Span(2 * size + 8, 7),
            Span(1),
            Span(9, 9),
            Span(size + 3),
            Span(3 * size, size + 2),
        ]
        taken += _check_heads(backend, spans, "attention.chunked")
        request = backend.first_supported(phase="prefill")
        if request is not None:
            backend.check(
                request, [Span(2 * size + 5, 6), Span(size + 4, size)], "attention.chunked", 7
            )
            taken += 1
        mixed = backend.first_supported()
        for index in (20, 21) if mixed is not None else ():
            drawn = _drawn_spans(Draw("attention.chunked spans", index), size)
            backend.check(mixed or {}, drawn, "attention.chunked", index)
    judge.require(taken > 0, f"no backend takes chunks of prompts in {dtype}")


def _drawn_spans(draw: Draw, block_size: int) -> list[Span]:
    """Sequences of any length, most with a few new tokens, some with one, some whole."""
    lengths = draw.integers(1, 4 * block_size, 7).tolist()
    parts = draw.uniform(7).tolist()
    return [
        Span(length, 1 if part < 0.4 else max(1, round(length * (part - 0.4) / 0.6)))
        for length, part in zip(lengths, parts, strict=True)
    ]


@check("attention.large_logits", per_dtype=True)
def large_logits(subject: Subject, judge: Judge, dtype: str) -> None:
    """Scores whose exponentials overflow unless the largest is subtracted."""
    for backend in backends_of(subject, judge, dtype):
        for spans in ([Span(20)], [Span(20, 3)]):
            request = backend.first_supported(phase=phase_of(spans))
            if request is None:
                continue
            batch = backend.batch(request, spans, "attention.large_logits")
            batch.queries = [one * 40 for one in batch.queries]
            backend.check_batch(request, batch)


@check("attention.near_ties", per_dtype=True)
def near_ties(subject: Subject, judge: Judge, dtype: str) -> None:
    """Large scores that differ by little: whoever rounds scores decides wrongly."""
    for backend in backends_of(subject, judge, dtype):
        request = backend.first_supported(phase="decode")
        if request is None:
            continue
        spans = [Span(length) for length in (9, 40, 2 * backend.block_sizes[0] + 1)]
        batch = backend.batch(request, spans, "attention.near_ties")
        for queries, keys in zip(batch.queries, batch.keys, strict=True):
            queries.copy_((queries.sign() * 4).to(queries.dtype))
            # A common part that makes every score large, and a small one of each key.
            shared = (queries[0, :: queries.shape[1] // keys.shape[1]] / 2).expand_as(keys)
            keys.copy_((shared + keys / 16).to(keys.dtype))
        backend.check_batch(request, batch)


@check("attention.block_sizes", per_dtype=True)
def block_sizes(subject: Subject, judge: Judge, dtype: str) -> None:
    """Every block size that is stated or claimed."""
    for backend in backends_of(subject, judge, dtype):
        sizes = dict.fromkeys((*backend.block_sizes, *subject.facts.claims["kv_block_sizes"]))
        for index, size in enumerate(sizes):
            spans = [Span(size), Span(size + 1, 2), Span(3 * size - 1)]
            request = backend.first_supported(
                num_heads=2, num_kv_heads=1, block_size=size, phase="mixed"
            )
            if request is not None:
                backend.check(request, spans, "attention.block_sizes", index)
            decode_only = backend.first_supported(block_size=size, phase="decode")
            if request is None and decode_only is not None:
                backend.check(
                    decode_only, [Span(size), Span(size + 1)], "attention.block_sizes", index
                )


@check("attention.head_sizes", per_dtype=True)
def head_sizes(subject: Subject, judge: Judge, dtype: str) -> None:
    """Every head size that it says it takes, among the usual ones."""
    for backend in backends_of(subject, judge, dtype):
        asked = [
            backend.request(head_dim=size, num_heads=3, num_kv_heads=1, phase=phase)
            for size in backend.head_sizes
            for phase in ("mixed", "decode", "prefill")
        ]
        done: set[int] = set()
        for request, is_taken in zip(asked, backend.supports(asked), strict=True):
            size, phase = request["head_dim"], request["phase"]
            if is_taken and size not in done:
                done.add(size)
                both = {
                    "mixed": [Span(19), Span(5, 5)],
                    "decode": [Span(19)],
                    "prefill": [Span(9, 9)],
                }
                backend.check(request, both[phase], "attention.head_sizes", size)
