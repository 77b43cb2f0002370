"""How much memory there is: told in bytes, moved by what is taken, given back in full."""

from __future__ import annotations

from typing import Any

import torch

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.subject import Facts, Raised, Subject

MIB = 1 << 20
_ASKED_BYTES = 8 * MIB
_MOVED_BYTES = 256 * MIB
_SLACK_BYTES = 2 * MIB
# What other programs on the host take and give back meanwhile.
_SHARED_SLACK_BYTES = 96 * MIB
# What the host's kernel keeps of freed pages for its processors counts as free only later, an
# eighth of the memory at most: among so much an allocation must still show.
SHARED_MOVED_BYTES = 4096 * MIB
_TRIES_WHERE_SHARED = 4
_BEYOND_ADDRESSES = 1 << 58


@check("memory.info_is_in_bytes")
def info_is_in_bytes(subject: Subject, judge: Judge) -> None:
    limit = subject.call("memory.limit")
    # Of a device that holds nothing the two may be equal, and nobody could tell which is which.
    subject.call("memory.hold", name="memory.asked", num_bytes=_ASKED_BYTES)
    info = subject.call("memory.info")
    subject.call("memory.drop", name="memory.asked")
    free, total = info["free"], info["total"]
    judge.require(
        0 < free < total,
        f"memory_info gives free={free}, total={total} while {_ASKED_BYTES} bytes are held",
    )
    judge.require(
        0.5 * limit <= total <= 1.001 * limit,
        f"memory_info gives a total of {total}; facts() gives a limit of {limit} bytes",
    )
    judge.require(
        total >= 16 * MIB, f"memory_info gives a total of {total}, which is no byte count"
    )


@check("memory.allocation_moves_free")
def allocation_moves_free(subject: Subject, judge: Judge) -> None:
    is_shared = subject.facts.shares_host_memory
    num_bytes = _some_bytes(subject, SHARED_MOVED_BYTES if is_shared else _MOVED_BYTES)
    slack = num_bytes // 2 if is_shared else _SLACK_BYTES
    if num_bytes < 2 * slack_bytes(subject.facts):  # less could not be told from its absence
        judge.not_run(f"needs more free memory than {4 * num_bytes // MIB} MiB")
    for attempt in range(_tries(subject.facts)):
        before = subject.call("memory.info")
        held = subject.call(
            "memory.hold", name="memory.moved", num_bytes=num_bytes, in_one=not is_shared
        )
        during = subject.call("memory.info")
        subject.call("memory.drop", name="memory.moved")
        off = abs(before["free"] - during["free"] - held)
        if off <= slack or attempt + 1 == _tries(subject.facts):
            judge.require(
                during["total"] == before["total"] or is_shared,
                f"the total changed from {before['total']} to {during['total']}",
            )
            judge.require(during["free"] <= during["total"], f"free exceeds the total: {during}")
            judge.at_most("free memory: MiB off", off / MIB, slack / MIB)
            return


@check("memory.each_device_counts_its_own")
def each_device_counts_its_own(subject: Subject, judge: Judge) -> None:
    if subject.facts.shares_host_memory:
        judge.not_claimed("the device shares the host's memory, which is counted once")
    if subject.facts.num_devices < 2:
        judge.not_run("needs two devices")
    other = 1
    before = [subject.call("memory.info", device_index=index) for index in (0, other)]
    held = subject.call(
        "memory.hold",
        name="memory.other",
        num_bytes=32 * MIB,
        device_index=other,
        in_one=True,
    )
    after = [subject.call("memory.info", device_index=index) for index in (0, other)]
    subject.call("memory.drop", name="memory.other")
    moved = [one["free"] - two["free"] for one, two in zip(before, after, strict=True)]
    judge.at_most("device 0: MiB moved by device 1", abs(moved[0]) / MIB, 2)
    judge.at_most("device 1: MiB off", abs(moved[1] - held) / MIB, 2)


@check("memory.nothing_leaks")
def nothing_leaks(subject: Subject, judge: Judge) -> None:
    for attempt in range(_tries(subject.facts)):
        found = subject.call("memory.churn", count=100, num_bytes=MIB)
        lost = found["before"] - found["after"]
        if lost < slack_bytes(subject.facts) or attempt + 1 == _tries(subject.facts):
            judge.at_most("MiB lost in 100 rounds", lost / MIB, slack_bytes(subject.facts) / MIB)
            return


@check("memory.running_out_is_typed")
def running_out_is_typed(subject: Subject, judge: Judge) -> None:
    total = subject.call("memory.info")["total"]
    num_bytes = _too_many_bytes(subject.facts, total)
    found: dict[str, Any] = subject.call("memory.exhaust", num_bytes=num_bytes)
    raised: Raised | None = found["raised"]
    if raised is None:
        judge.fail("four times the memory of the device was handed out without an error")
    judge.require(
        "OutOfDeviceMemory" in raised.kinds,
        f"running out of memory reaches the core as {raised.kind}: {raised.message}; expected "
        "OutOfDeviceMemory",
    )
    index = raised.attributes.get("device_index")
    judge.require(index == 0, f"the error names device {index}; it happened on device 0")


@check("memory.running_out_is_survived")
def running_out_is_survived(subject: Subject, judge: Judge) -> None:
    before = subject.call("memory.info")
    num_bytes = _too_many_bytes(subject.facts, before["total"])
    subject.call("memory.exhaust", num_bytes=num_bytes)
    after = subject.call("memory.info")
    lost = before["free"] - after["free"]
    judge.at_most("MiB lost by a refused allocation", lost / MIB, slack_bytes(subject.facts) / MIB)
    given = torch.arange(6, dtype=torch.float32)
    judge.exact(subject.call("memory.works", tensor=given), given * 2, "a computation afterwards")


@check("memory.peak_is_kept")
def peak_is_kept(subject: Subject, judge: Judge) -> None:
    num_bytes = min(64 * MIB, _some_bytes(subject))
    found = subject.call("memory.peak", num_bytes=num_bytes)
    risen = found["during"] - found["before"]
    judge.require(
        0.9 * num_bytes <= risen <= num_bytes + 64 * MIB,
        f"the peak rose by {risen} bytes while {num_bytes} were taken",
    )
    if subject.facts.shares_host_memory:
        judge.warn("the device shares the host's memory, so only the peak of the moment was judged")
        return
    judge.require(
        found["after"] >= found["during"] - MIB,
        f"the peak fell from {found['during']} to {found['after']} when memory was given back",
    )
    judge.require(
        found["reset"] <= found["during"] - 0.9 * num_bytes,
        f"the peak is {found['reset']} after its reset; {found['during']} was the one before",
    )


@check("memory.far_rows_are_reached")
def far_rows_are_reached(subject: Subject, judge: Judge) -> None:
    num_rows, width = (1 << 18) + 3, 66  # past 2**24 elements, where float32 stops to count
    found = subject.call("memory.far_rows", num_rows=num_rows, width=width)
    numbers = torch.tensor([0, 1, num_rows - 2, num_rows - 1])
    halves = (numbers % 251, numbers // 251)
    expected = torch.cat([half.half()[:, None].expand(4, width // 2) for half in halves], dim=1)
    for name, rows in found.items():
        judge.exact(rows, expected, f"{name}: rows at both ends of a large table")


def _too_many_bytes(facts: Facts, total: int) -> int:
    """More than the device can give: a host may promise its memory several times over, but not
    more than a process can address."""
    return max(4 * total, _BEYOND_ADDRESSES) if facts.shares_host_memory else 4 * total


def _some_bytes(subject: Subject, most: int = _MOVED_BYTES) -> int:
    return min(most, int(subject.call("memory.info")["free"]) // 4)


def slack_bytes(facts: Facts) -> int:
    """What free memory may move by of itself."""
    return _SHARED_SLACK_BYTES if facts.shares_host_memory else _SLACK_BYTES


def _tries(facts: Facts) -> int:
    return _TRIES_WHERE_SHARED if facts.shares_host_memory else 1
