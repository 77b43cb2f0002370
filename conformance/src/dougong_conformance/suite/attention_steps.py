"""Checks of how steps follow one another, and of what surrounds a step's numbers."""

from __future__ import annotations

import torch

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.kit.paged import Span
from dougong_conformance.subject import Subject
from dougong_conformance.suite.backend_under_test import backends_of, phase_of

_FAR_BLOCK = 65536 + 40
_FAR_BYTES = 400 << 20


@check("attention.shared_prefix", per_dtype=True)
def shared_prefix(subject: Subject, judge: Judge, dtype: str) -> None:
    """Sequences whose first blocks are the same ones each count them once."""
    for backend in backends_of(subject, judge, dtype):
        size = backend.block_sizes[0]
        spans = [Span(2 * size + 3), Span(2 * size + 7, shared=2), Span(size + 1, shared=1)]
        request = backend.first_supported(phase="decode")
        if request is not None:
            backend.check(request, spans, "attention.shared_prefix")


@check("attention.repeatable", per_dtype=True)
def repeatable(subject: Subject, judge: Judge, dtype: str) -> None:
    """The same step gives the same bits."""
    for backend in backends_of(subject, judge, dtype):
        size = backend.block_sizes[0]
        for spans in ([Span(4 * size + 6), Span(2 * size + 1)], [Span(size + 5, 5)]):
            request = backend.first_supported(phase=phase_of(spans))
            if request is None:
                continue
            batch = backend.batch(request, spans, "attention.repeatable")
            outs = backend.run(request, batch, [batch.step()] * 3)["outs"]
            judge.require(
                all(torch.equal(one.nan_to_num(), outs[0].nan_to_num()) for one in outs[1:]),
                f"attention by {backend.name} in {dtype} gives other bits when a step is repeated",
            )


@check("attention.changing_steps", per_dtype=True)
def changing_steps(subject: Subject, judge: Judge, dtype: str) -> None:
    """Steps of the same shape that hold other sequences: nothing of the last one is left."""
    for backend in backends_of(subject, judge, dtype):
        size = backend.block_sizes[0]
        request = backend.first_supported(phase="decode")
        if request is None:
            continue
        spans = [Span(size + 3), Span(2 * size), Span(size + 9), Span(size + 1)]
        batch = backend.batch(request, spans, "attention.changing_steps")
        orders = [[0, 1], [2, 3], [3, 0], [1, 2]]
        done = backend.run(request, batch, [batch.step(order) for order in orders])
        for at, order in enumerate(orders):
            backend.compare(request, batch, done, at, order)


@check("attention.padding", per_dtype=True)
def padding(subject: Subject, judge: Judge, dtype: str) -> None:
    """Rows and tokens of padding at the end of a step change nothing."""
    for backend in backends_of(subject, judge, dtype):
        size = backend.block_sizes[0]
        for padded in (1, 5):
            spans = [Span(size + 3), Span(4), Span(2 * size + 1)]
            request = backend.first_supported(phase="decode")
            if request is None:
                continue
            batch = backend.batch(request, spans, "attention.padding", padded, padded=padded)
            backend.check_batch(request, batch)


@check("attention.bounds", per_dtype=True)
def bounds(subject: Subject, judge: Judge, dtype: str) -> None:
    """Only the rows of ``out`` are written, and the cache only by ``write_kv``."""
    for backend in backends_of(subject, judge, dtype):
        size = backend.block_sizes[0]
        for spans in ([Span(size + 2), Span(3)], [Span(size + 2, 4), Span(7, 7)]):
            request = backend.first_supported(phase=phase_of(spans))
            if request is None:
                continue
            done = backend.check(request, spans, "attention.bounds", keeps_cache=True)
            judge.require(
                all(map(torch.equal, done["before"], done["after"])),
                f"forward of {backend.name} in {dtype} writes the cache, which others share",
            )


@check("attention.nonfinite", per_dtype=True)
def nonfinite(subject: Subject, judge: Judge, dtype: str) -> None:
    """A NaN in one sequence's keys, values or queries spoils that sequence alone, and shows."""
    for backend in backends_of(subject, judge, dtype):
        size = backend.block_sizes[0]
        request = backend.any_supported()
        if request is None:
            continue
        new = {"mixed": (1, 5, 1, 1), "decode": (1, 1, 1, 1), "prefill": (4, 5, 9, 3)}
        lengths = (size + 3, 5, 9, size - 1)
        spans = list(map(Span, lengths, new[request["phase"]]))
        batch = backend.batch(request, spans, "attention.nonfinite")
        batch.queries[0][0] = torch.nan
        batch.values[2][4] = torch.nan
        backend.check_batch(request, batch)


@check("attention.far_blocks")
def far_blocks(subject: Subject, judge: Judge) -> None:
    """Blocks beyond the 65,536th are found."""
    run, dtypes = 0, subject.facts.dtypes
    narrow = next((one for one in ("bfloat16", "float16") if one in dtypes), dtypes[0])
    for backend in backends_of(subject, judge, narrow):
        small = backend.first_supported(
            head_dim=min(backend.head_sizes),
            num_heads=1,
            num_kv_heads=1,
            block_size=min(backend.block_sizes),
            phase="decode",
        )
        if small is None:
            continue
        element = getattr(torch, narrow).itemsize
        needed = 2 * _FAR_BLOCK * small["block_size"] * small["head_dim"] * element
        if needed > max(_FAR_BYTES, subject.call("memory.info")["free"] // 4):
            continue
        spans = [Span(2 * small["block_size"] + 1), Span(3)]
        batch = backend.batch(small, spans, "attention.far_blocks", first_block=_FAR_BLOCK)
        backend.check_batch(small, batch, is_poisoned=False)
        run += 1
    if not run:
        judge.not_run(
            f"a cache of {_FAR_BLOCK} blocks needs more than {_FAR_BYTES >> 20} MiB, and more than "
            "a quarter of the memory that is free"
        )


@check("attention.metadata_waits", per_dtype=True)
def metadata_waits(subject: Subject, judge: Judge, dtype: str) -> None:
    """The metadata builder never waits for the device."""
    for backend in backends_of(subject, judge, dtype):
        for spans in ([Span(20), Span(9)], [Span(20, 3), Span(9, 9), Span(4)]):
            request = backend.first_supported(phase=phase_of(spans))
            if request is None:
                continue
            batch = backend.batch(request, spans, "attention.metadata_waits")
            done = backend.run(request, batch, [batch.step()] * 2)
            for counts in done["built"]:
                waits = counts["to_host"] + counts["syncs"]
                judge.require(
                    waits == 0,
                    f"the builder of {backend.name} reads {waits} times from the device in a step",
                )
