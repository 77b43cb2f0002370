"""What becomes of a group when a rank or the device under it fails."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from dougong.contracts import CommunicatorTimeout, DeadlinePhase, DeviceError, PeerLost

from dougong_sim.communicator import SimCommunicator
from dougong_sim.device import control
from dougong_sim.errors import classify
from tests.communicator.ranks import PATIENT_S, run_group, synchronize

LATE_US = 60_000_000  # what is enqueued starts when it is waited for, so its errors are late


def _late_error(group: SimCommunicator) -> torch.AcceleratorError:
    """What the device raises where the host waits for it."""
    with pytest.raises(torch.AcceleratorError) as caught:
        synchronize(group)
    return caught.value


def _ones(group: SimCommunicator, size: int = 4) -> torch.Tensor:
    return torch.ones(size, device=group.device)


def _with_a_silent_rank(
    folder: Path, size: int, **how: float
) -> list[tuple[torch.AcceleratorError, DeviceError | None]]:
    """Late error and its explanation on all ranks but the last, which makes no call."""
    all_have_met_it = threading.Barrier(size)

    def work(
        group: SimCommunicator,
    ) -> tuple[torch.AcceleratorError, DeviceError | None] | None:
        group.barrier()
        group.set_phase(DeadlinePhase.SERVE)
        found = None
        if group.rank < size - 1:
            group.all_reduce(_ones(group))
            error = _late_error(group)
            found = error, group.explain(error)
        all_have_met_it.wait(PATIENT_S)
        return found

    options = {"backend_timeouts_s": {"serve": how.pop("backend_timeout_s")}}
    return [found for found in run_group(folder, size, work, options=options, **how) if found]


@pytest.mark.parametrize("size", [2, 3])
def test_a_silent_rank_is_the_librarys_error_first(tmp_path: Path, size: int) -> None:
    found = _with_a_silent_rank(tmp_path, size, backend_timeout_s=0.3)
    faults = [classify(error) for error, _ in found]
    kinds = {fault.kind for fault in faults if fault is not None}
    # Who is late by more than it takes to tell him learns it from the first, and is let go by it.
    assert CommunicatorTimeout in kinds <= {CommunicatorTimeout, PeerLost}
    assert any("c10d::allreduce: simccl: timed out: " in str(error) for error, _ in found)
    for _, explained in found:
        assert type(explained) is CommunicatorTimeout
        assert f"rank {size - 1} has not called it" in str(explained)


def test_a_deadline_frees_the_device_of_a_library_that_would_wait(tmp_path: Path) -> None:
    ((error, explained),) = _with_a_silent_rank(tmp_path, 2, serve_s=0.4, backend_timeout_s=5.0)
    assert "simccl: peer lost: the process group was aborted" in str(error)
    assert type(explained) is CommunicatorTimeout
    assert "its deadline of 0.4 s passed; rank 1 has not called it" in str(explained)


def test_an_abort_frees_the_host_that_waits_for_the_device(tmp_path: Path) -> None:
    has_met_it = threading.Event()

    def work(group: SimCommunicator) -> None:
        if group.rank == 1:
            assert has_met_it.wait(PATIENT_S)
            return
        group.set_phase(DeadlinePhase.SERVE)
        mine = _ones(group)
        group.all_reduce(mine)
        threading.Timer(0.1, group.abort).start()
        error = _late_error(group)
        has_met_it.set()
        fault = classify(error)
        assert fault is not None
        assert fault.kind is PeerLost
        assert type(group.explain(error)) is PeerLost
        with pytest.raises(PeerLost, match="aborted by rank 0"):
            group.broadcast(mine)

    run_group(tmp_path, 2, work, options={"backend_timeouts_s": {"serve": 3.0}})


def test_unlike_calls_are_a_late_error_that_names_both(tmp_path: Path) -> None:
    control.set_mode("thread", delay_us=LATE_US)

    def work(group: SimCommunicator) -> str:
        group.all_reduce(_ones(group, 4 + group.rank))
        return str(_late_error(group))

    for text in run_group(tmp_path, 2, work):
        assert "mismatched calls: rank 0 of the group calls ALLREDUCE of 4 Float, " in text
        assert "rank 1 calls ALLREDUCE of 5 Float" in text


def test_parts_that_another_rank_does_not_expect_are_a_late_error(tmp_path: Path) -> None:
    control.set_mode("thread", delay_us=LATE_US)

    def work(group: SimCommunicator) -> str:
        receives = [1, 1] if group.rank == 0 else [2, 1]
        group.all_to_all_v(_ones(group, 2), [1, 1], receives)
        return str(_late_error(group))

    for text in run_group(tmp_path, 2, work):
        assert "1 of them to and 1 from the other, rank 1 calls ALLTOALL_BASE" in text
        assert "1 of them to and 2 from the other" in text


def test_an_injected_error_is_the_devices_own(tmp_path: Path) -> None:
    control.set_mode("thread", delay_us=LATE_US)
    has_failed = threading.Event()

    def work(group: SimCommunicator) -> str:
        if group.rank == 1:
            assert has_failed.wait(PATIENT_S)
            return ""
        control.inject("error", device=0, op="c10d::allreduce", message="link down")
        group.all_reduce(_ones(group))
        error = _late_error(group)
        has_failed.set()
        assert group.explain(error) is None
        return str(error)

    assert "link down [in c10d::allreduce]" in run_group(tmp_path, 2, work)[0]


def test_an_injected_death_of_a_peer_looks_like_one(tmp_path: Path) -> None:
    control.set_mode("thread", delay_us=LATE_US)
    has_failed = threading.Event()

    def work(group: SimCommunicator) -> type[DeviceError] | None:
        if group.rank == 1:
            assert has_failed.wait(PATIENT_S)
            return None
        control.inject("peer_dead", device=0, op="c10d::broadcast", message="fan failed")
        group.broadcast(_ones(group))
        error = _late_error(group)
        assert "simccl: peer lost: injected: fan failed" in str(error)
        assert type(group.explain(error)) is PeerLost
        has_failed.set()
        fault = classify(error)
        return fault.kind if fault else None

    assert run_group(tmp_path, 2, work)[0] is PeerLost


def test_a_collective_that_hangs_meets_its_deadline(tmp_path: Path) -> None:
    def work(group: SimCommunicator) -> DeviceError | None:
        group.barrier()
        group.set_phase(DeadlinePhase.SERVE)
        if group.rank == 0:
            control.inject("hang", device=0, op="c10d::allreduce")
        group.all_reduce(_ones(group))
        failed = threading.Event()
        while not failed.wait(0.01):
            try:
                group.all_reduce(_ones(group))
            except DeviceError as exc:
                control.unhang(0)
                return exc
        return None

    for error in run_group(tmp_path, 2, work, serve_s=0.4):
        assert type(error) is CommunicatorTimeout
        assert "all_reduce" in str(error)


def test_an_error_that_is_there_already_is_the_next_calls(tmp_path: Path) -> None:
    control.set_mode("eager")

    def work(group: SimCommunicator) -> None:
        mine = _ones(group)
        control.inject("peer_dead", device=0, op="c10d::allreduce", message="fan failed")
        with pytest.raises(PeerLost, match="simccl: peer lost: injected: fan failed") as caught:
            group.all_reduce(mine)
        assert type(caught.value.__cause__) is torch.AcceleratorError

    run_group(tmp_path, 1, work)


def test_tensors_of_the_host_are_refused_by_name(tmp_path: Path) -> None:
    def work(group: SimCommunicator) -> None:
        backend = group._calls._library  # what a user of torch.distributed has in hand
        with pytest.raises(RuntimeError, match="a tensor on cpu leaked into c10d::allreduce"):
            backend.allreduce([torch.ones(1)])
        with pytest.raises(RuntimeError, match="takes contiguous tensors"):
            backend.allreduce([torch.ones(2, 3, device=group.device).t()])

    run_group(tmp_path, 1, work)
