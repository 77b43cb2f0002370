"""What a group does when a rank is silent, leaves, aborts or never comes; ranks are threads."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dougong.contracts import (
    CommunicatorTimeout,
    DeadlinePhase,
    DeviceError,
    GroupKind,
    PeerLost,
)
from dougong.reference import TorchCommunicator
from tests.support.ranks import PATIENT_S, group_options, run_group


def _failure(call: Callable[[], object]) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        call()
    return caught.value


def _with_a_silent_rank(
    folder: Path, size: int, call: Callable[[TorchCommunicator], object], **how: Any
) -> list[DeviceError]:
    """What all ranks but the last one meet when that one makes no call, but lives."""
    all_have_met_it = threading.Barrier(size)

    def work(group: TorchCommunicator) -> DeviceError | None:
        group.all_reduce(torch.ones(1))
        group.set_phase(DeadlinePhase.SERVE)
        error = None if group.rank == size - 1 else _failure(lambda: call(group))
        all_have_met_it.wait(PATIENT_S)
        return error

    found = run_group(folder, size, work, **how)
    return [error for error in found if error is not None]


@pytest.mark.parametrize("size", [2, 3])
def test_a_silent_rank_is_named_when_the_librarys_own_time_is_over(
    tmp_path: Path, size: int
) -> None:
    errors = _with_a_silent_rank(
        tmp_path,
        size,
        lambda group: group.all_reduce(torch.ones(1)),
        options={"backend_timeouts_s": {"serve": 0.3}},
    )
    for error in errors:
        assert type(error) is CommunicatorTimeout
        text = str(error)
        assert "all_reduce (call 3) of group tp of ranks 0, 1" in text
        assert "phase serve: " in text
        assert "imed out waiting 300ms" in text
        assert f"rank {size - 1} has not called it (its last: all_reduce, call 2)" in text


def test_the_deadline_ends_a_call_that_the_library_would_wait_for(tmp_path: Path) -> None:
    (error,) = _with_a_silent_rank(
        tmp_path,
        2,
        lambda group: group.all_gather(torch.ones(1)),
        serve_s=0.5,
        options={"backend_timeouts_s": {"serve": 5.0}},
    )
    assert type(error) is CommunicatorTimeout
    assert "its deadline of 0.5 s passed; rank 1 has not called it" in str(error)


def test_a_silent_sender_is_named(tmp_path: Path) -> None:
    (error,) = _with_a_silent_rank(
        tmp_path, 2, lambda group: group.recv((1,), torch.float32, src=1), serve_s=0.5
    )
    assert type(error) is CommunicatorTimeout
    assert "rank 1 did not take its part" in str(error)


def test_an_abort_lets_every_rank_go_and_is_for_good(tmp_path: Path) -> None:
    waits = threading.Barrier(3)

    def work(group: TorchCommunicator) -> list[str]:
        group.set_phase(DeadlinePhase.SERVE)
        if group.rank == 2:
            waits.wait(PATIENT_S)
            group.abort()
            group.abort()
            return []
        if group.rank == 0:
            threading.Timer(0.05, lambda: waits.wait(PATIENT_S)).start()
        else:
            waits.wait(PATIENT_S)
        errors = [_failure(lambda: group.all_reduce(torch.ones(1))) for _ in range(2)]
        assert {type(error) for error in errors} == {PeerLost}
        return [str(error) for error in errors]

    first, second, _ = run_group(tmp_path, 3, work, options={"backend_timeouts_s": {"serve": 3.0}})
    for text in first + second:
        assert "group tp of ranks 0, 1, 2 was aborted by rank 2" in text


@pytest.mark.parametrize("way", ["abort", "destroy"])
def test_a_waiter_is_let_go_by_another_thread_of_its_process(tmp_path: Path, way: str) -> None:
    is_free = threading.Event()

    def work(group: TorchCommunicator) -> str:
        group.set_phase(DeadlinePhase.SERVE)
        if group.rank == 1:
            assert is_free.wait(PATIENT_S)
            return ""
        threading.Timer(0.1, getattr(group, way)).start()
        error = _failure(lambda: group.recv((1,), torch.float32, src=1))
        is_free.set()
        assert type(error) is PeerLost
        return str(error)

    found = run_group(tmp_path, 2, work, options={"backend_timeouts_s": {"serve": 30.0}})
    assert {"abort": "was aborted by rank 0", "destroy": "was destroyed"}[way] in found[0]


def test_a_rank_that_left_in_order_is_missed_at_the_next_call_only(tmp_path: Path) -> None:
    has_left = threading.Event()

    def work(group: TorchCommunicator) -> list[float]:
        if group.rank == 0:
            total = group.all_reduce(torch.ones(1))
            group.destroy()
            has_left.set()
            return total.tolist()
        total = group.all_reduce(torch.ones(1))
        assert has_left.wait(PATIENT_S)
        error = _failure(lambda: group.all_reduce(torch.ones(1)))
        assert type(error) is PeerLost
        assert re.search(r"ranks? 0", str(error))
        return total.tolist()

    assert run_group(tmp_path, 3, work) == [[3.0]] * 3


def test_ranks_that_never_come_are_named(tmp_path: Path) -> None:
    options = group_options(4, (2, 4, 7), tmp_path / "meeting", load_s=0.2, kind=GroupKind.DATA)
    with pytest.raises(CommunicatorTimeout, match=r"ranks 2, 7 did not join group dp"):
        TorchCommunicator(options, torch.device("cpu"))


def test_a_devices_error_is_explained_by_what_the_group_knows(tmp_path: Path) -> None:
    def work(group: TorchCommunicator) -> None:
        if group.rank == 1:
            return
        # No call of this group has failed: it is of another group of this process.
        assert group.explain(RuntimeError("collective timed out")) is None
        group.abort()
        failure = group.explain(RuntimeError("illegal instruction"))
        assert type(failure) is PeerLost

    run_group(tmp_path, 2, work)


def test_a_watch_that_cannot_go_on_fails_its_group(tmp_path: Path) -> None:
    all_have_met_it = threading.Barrier(2)

    def work(group: TorchCommunicator) -> str:
        if group.rank == 0:
            (link,) = group._watch._links.values()
            link.connection.sendall(b"no message\n")
        error = _failure(lambda: group.recv((1,), torch.float32, 1 - group.rank))
        all_have_met_it.wait(PATIENT_S)
        return str(error)

    for text in run_group(tmp_path, 2, work):
        assert "the watch of group tp of ranks 0, 1 ended with JSONDecodeError" in text
