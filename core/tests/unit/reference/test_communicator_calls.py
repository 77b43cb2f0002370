"""Calls of a library whose work is the device's: a double of one, since gloo's is the host's."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from dougong.contracts import (
    CommunicatorTimeout,
    DeadlinePhase,
    DeviceError,
    GroupKind,
    GroupOptions,
    PeerLost,
    UnsupportedError,
)
from dougong.reference.communicator_calls import LibraryCalls
from dougong.reference.communicator_group import Group
from dougong.reference.communicator_watch import GroupWatch
from tests.support.ranks import PATIENT_S

SERVE = DeadlinePhase.SERVE


class Work:
    """Over when the test says so."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.failure: Exception | None = None
        self.num_waits = 0

    def is_completed(self) -> bool:
        return self.is_over.is_set()

    def wait(self, timeout: object = None) -> None:
        self.num_waits += 1
        if self.is_over.is_set() and self.failure is not None:
            raise self.failure


class Library:
    """Hands out works; says what was done to it."""

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.done: list[str] = []
        self.has_aborted = threading.Event()

    def start(self) -> Work:
        self.works.append(Work())
        return self.works[-1]

    def abort(self) -> None:
        self.done.append("abort")
        self.has_aborted.set()
        raise OSError("no such fabric")

    def shutdown(self) -> None:
        self.done.append("shutdown")
        raise OSError("no such fabric")


class Setting:
    def __init__(self, *, is_stream_ordered: bool) -> None:
        options = GroupOptions(kind=GroupKind.TENSOR, ranks=(3,), rank=3, init_method="")
        self.library = Library()
        self.watch = GroupWatch(Group(options, 0), {})
        device = torch.device("cpu")
        self.calls = LibraryCalls(Group(options, 0), self.watch, device, is_stream_ordered)
        self.watch.start(self.calls.abort)
        self.calls.make(lambda: self.library, SERVE, PATIENT_S)

    def run(self, limit_s: float = PATIENT_S, **how: Any) -> Any:
        return self.calls.run("all_reduce", lambda library: library.start(), SERVE, limit_s, **how)

    def failure(self) -> DeviceError:
        until = time.monotonic() + PATIENT_S
        while self.watch.failure is None and time.monotonic() < until:
            time.sleep(0.001)
        assert self.watch.failure is not None
        return self.watch.failure


@pytest.fixture
def asynchronous() -> Iterator[Setting]:
    setting = Setting(is_stream_ordered=True)
    yield setting
    setting.watch.close()


@pytest.fixture
def blocking() -> Iterator[Setting]:
    setting = Setting(is_stream_ordered=False)
    yield setting
    setting.watch.close()


def test_a_call_returns_when_the_stream_will_wait_for_it(asynchronous: Setting) -> None:
    call = asynchronous.run()
    (work,) = asynchronous.library.works
    assert work.num_waits == 1
    assert not asynchronous.watch.is_over(call)
    work.is_over.set()
    asynchronous.calls.wait_over(call)


def test_a_device_that_does_not_come_to_the_end_of_a_call_meets_its_deadline(
    asynchronous: Setting,
) -> None:
    asynchronous.run(limit_s=0.05)
    failure = asynchronous.failure()
    assert type(failure) is CommunicatorTimeout
    assert "all_reduce (call 2) of group tp of ranks 3" in str(failure)
    assert failure.rank == 3
    assert asynchronous.library.has_aborted.wait(PATIENT_S)  # and its error harms nothing
    with pytest.raises(CommunicatorTimeout):
        asynchronous.run()


def test_a_call_that_is_over_in_time_has_no_deadline_left(asynchronous: Setting) -> None:
    call = asynchronous.run()
    asynchronous.library.works[0].is_over.set()
    asynchronous.calls.wait_over(call)
    call.due = 0.0
    time.sleep(0.3)  # the watch looks ten times a second
    assert not asynchronous.watch.has_failed


def test_what_the_device_failed_with_is_found_by_the_watch(asynchronous: Setting) -> None:
    asynchronous.run()
    (work,) = asynchronous.library.works
    work.failure = RuntimeError("connection closed by peer")
    work.is_over.set()
    failure = asynchronous.failure()
    assert type(failure) is PeerLost
    assert "connection closed by peer" in str(failure)


def test_an_error_of_the_device_that_is_not_the_groups_stays_as_it_is(
    asynchronous: Setting,
) -> None:
    def start(library: Library) -> Work:
        raise RuntimeError("illegal instruction in an earlier kernel")

    with pytest.raises(RuntimeError, match="illegal instruction"):
        asynchronous.calls.run("all_reduce", start, SERVE, PATIENT_S)
    asynchronous.run()
    assert not asynchronous.watch.has_failed


def test_an_error_of_a_library_of_the_host_is_the_groups_device_error(blocking: Setting) -> None:
    def start(library: Library) -> Work:
        raise RuntimeError("enforce failed")

    with pytest.raises(DeviceError, match="all_reduce of group tp of ranks 3 failed: enforce"):
        blocking.calls.run("all_reduce", start, SERVE, PATIENT_S)


def test_what_is_sent_is_waited_for_only_when_the_group_is_suspended(blocking: Setting) -> None:
    is_taken = threading.Event()
    work = Work()
    setattr(work, "wait", lambda: is_taken.wait(PATIENT_S))  # noqa: B010 - of this one only
    call = blocking.calls.run("send", lambda _: work, SERVE, PATIENT_S, peer=0, is_sent=True)
    assert not blocking.watch.is_over(call)
    threading.Timer(0.05, is_taken.set).start()
    blocking.calls.settle(SERVE, PATIENT_S)
    assert blocking.watch.is_over(call)


def test_a_library_that_was_given_back_takes_no_calls(blocking: Setting) -> None:
    blocking.calls.part()  # and the error of its shutdown harms nothing
    assert blocking.library.done == ["shutdown"]
    assert not blocking.calls.is_here
    with pytest.raises(UnsupportedError, match="suspended or destroyed"):
        blocking.run()
    blocking.calls.abort()


def test_a_call_that_ends_just_when_a_slice_of_waiting_is_over_has_ended_well(
    blocking: Setting,
) -> None:
    class JustInTime(Work):
        def wait(self, timeout: object = None) -> None:
            if timeout is not None:
                self.is_over.set()
                raise RuntimeError("Operation timed out!")

    blocking.calls.run("all_reduce", lambda library: JustInTime(), SERVE, PATIENT_S)
    assert not blocking.watch.has_failed
