"""A rank's process is killed: the one thing that threads cannot play."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch

from dougong.contracts import DeviceError
from dougong.reference import TorchCommunicator
from tests.support.ranks import PATIENT_S, group_options

SIZE = 4
# Its parent imports torch once, for all ranks; what a rank holds is its own all the same.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["dougong.reference.communicator", "tests.support.ranks"])


def _rank_main(rank: int, meeting: str, says: Connection) -> None:
    torch.set_num_threads(1)
    options = group_options(rank, tuple(range(SIZE)), Path(meeting))
    group = TorchCommunicator(options, torch.device("cpu"))
    group.all_reduce(torch.ones(1))
    says.send("ready")
    if rank == 2:
        says.recv()  # and is stopped here
    if rank == 1:
        says.recv()  # told when the others have met it: it waits in no call
    try:
        group.all_reduce(torch.ones(1))
    except DeviceError as exc:
        says.send(f"{type(exc).__name__}: {exc}")
    if rank == 3:
        says.recv()  # silent, and killed too
    group.destroy()


def _start(meeting: Path) -> list[tuple[BaseProcess, Connection]]:
    ranks: list[tuple[BaseProcess, Connection]] = []
    for rank in range(SIZE):
        here, there = PROCESSES.Pipe()
        process = PROCESSES.Process(target=_rank_main, args=(rank, str(meeting), there))
        process.start()
        there.close()
        ranks.append((process, here))
    return ranks


def _heard(connection: Connection) -> str:
    assert connection.poll(PATIENT_S), "nothing heard"
    return str(connection.recv())


@pytest.mark.timeout(180)
def test_a_killed_process_is_lost_for_all_who_wait_and_who_come_later(
    tmp_path: Path,
) -> None:
    ranks = _start(tmp_path / "meeting")
    try:
        assert {_heard(connection) for _, connection in ranks} == {"ready"}
        os.kill(ranks[2][0].pid or 0, signal.SIGKILL)
        found = [_heard(ranks[rank][1]) for rank in (0, 3)]
        ranks[1][1].send("go on")
        found.append(_heard(ranks[1][1]))
    finally:
        for process, _ in ranks:
            process.kill()
            process.join()
    for text in found:  # the deadline, a minute, would be a CommunicatorTimeout
        assert text.startswith("PeerLost: ")
        assert "rank 2" in text
