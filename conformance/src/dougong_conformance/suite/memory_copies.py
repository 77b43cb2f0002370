"""What is copied arrives: strided, pinned, behind the host's back."""

from __future__ import annotations

import torch

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.kit.generate import Draw
from dougong_conformance.subject import Subject


@check("memory.zeros_are_zero")
def zeros_are_zero(subject: Subject, judge: Judge) -> None:
    for index, zeros in enumerate(subject.call("memory.zeros_after_dirty", numel=4099, rounds=4)):
        judge.exact(zeros, torch.zeros(4099), f"zeros number {index} in memory that was dirty")


@check("memory.strided_copies_arrive")
def strided_copies_arrive(subject: Subject, judge: Judge) -> None:
    given = Draw("memory.strided_copies_arrive").normal(7, 6)
    sparse, wide = torch.zeros(7, 12), torch.zeros(7, 12)
    sparse[:, ::2] = given
    wide[:, 1::2] = given
    expected = {
        "device to host, transposed": given.t(),
        "device to host, every second column": given[:, ::2],
        "device to host, from an offset": given.flatten()[3:],
        "host to device, transposed": given,
        "device to host, into every second column": sparse,
        "host to device, into every second column": wide,
        "device to device, transposed": given.t(),
    }
    found = subject.call("memory.strided_copies", tensor=given)
    for name, right in expected.items():
        judge.exact(found[name], right, name)


@check("memory.host_buffers_fit")
def host_buffers_fit(subject: Subject, judge: Judge) -> None:
    for shape, dtype in (((3, 5), "float32"), ((7,), "int64"), ((), "int32")):
        found = subject.call("memory.host_buffers", shape=shape, dtype=dtype)
        what = f"empty_host({shape}, {dtype})"
        judge.require(
            found["device"] == "cpu", f"{what} lies on {found['device']}, not on the host"
        )
        judge.require(found["is_contiguous"], f"{what} is not contiguous")
        kind = getattr(torch, dtype)
        judge.exact(found["first"], torch.full(shape, 1, dtype=kind), f"the first {what}")
        judge.exact(found["second"], torch.full(shape, 2, dtype=kind), f"the second {what}")


@check("memory.host_buffers_are_pinned")
def host_buffers_are_pinned(subject: Subject, judge: Judge) -> None:
    found = subject.call("memory.host_buffers", shape=(64,), dtype="float32")
    if not subject.facts.claims["pin_memory"]:
        if found["is_pinned"]:
            judge.warn("empty_host gives pinned memory, and pin_memory is not claimed")
        judge.not_claimed("pin_memory is not claimed")
    judge.require(found["is_pinned"], "pin_memory is claimed, and empty_host gives pageable memory")


@check("memory.copies_keep_their_order")
def copies_keep_their_order(subject: Subject, judge: Judge) -> None:
    draw = Draw("memory.copies_keep_their_order")
    for index in range(3):
        given = draw.normal(257, 64)
        found = subject.call("memory.async_copies", tensor=given, poison=-77.0)
        judge.exact(found["there and back"], given, f"round {index}: there and back")
        judge.exact(
            found["overwritten after it"],
            torch.full_like(given, -77.0),
            f"round {index}: what was written behind the copy",
        )
