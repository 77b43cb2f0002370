"""Collectives of two ranks in two threads, over a file of their own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from dougong.contracts import (
    DeadlinePhase,
    DeviceError,
    GroupKind,
    GroupOptions,
    UnsupportedError,
)
from dougong.reference import TorchCommunicator

SIZE = 2


def run_ranks(folder: Path, work: Callable[[TorchCommunicator], object]) -> list[object]:
    def rank_main(rank: int) -> object:
        options = GroupOptions(
            kind=GroupKind.TENSOR,
            ranks=tuple(range(SIZE)),
            rank=rank,
            init_method=f"file://{folder}/meeting",
            deadlines_s={DeadlinePhase.LOAD: 20.0, DeadlinePhase.SERVE: 1.0},
        )
        communicator = TorchCommunicator(options, torch.device("cpu"))
        try:
            return work(communicator)
        finally:
            communicator.destroy()
            communicator.destroy()

    with ThreadPoolExecutor(SIZE) as pool:
        return list(pool.map(rank_main, range(SIZE)))


def test_each_collective_gives_what_its_definition_says(tmp_path: Path) -> None:
    def work(group: TorchCommunicator) -> dict[str, list[float] | None]:
        rank = group.rank
        mine = torch.tensor([1.0, 2.0]) + 10 * rank
        gathered = group.gather(mine, dst=1)
        if rank == 0:
            group.send(torch.tensor([7.0]), dst=1)
            received = torch.tensor([0.0])
        else:
            received = group.recv((1,), torch.float32, src=0)
        group.barrier()
        return {
            "all_reduce": group.all_reduce(mine.clone()).tolist(),
            "all_gather": group.all_gather(mine).tolist(),
            "all_gather_v": group.all_gather_v(mine[: rank + 1], [1, 2]).tolist(),
            "reduce_scatter": group.reduce_scatter(mine).tolist(),
            "reduce_scatter_v": group.reduce_scatter_v(mine, [2, 0]).tolist(),
            "broadcast": group.broadcast(mine.clone(), src=1).tolist(),
            "gather": None if gathered is None else gathered.tolist(),
            "recv": received.tolist(),
            "all_to_all": group.all_to_all(mine).tolist(),
            "all_to_all_v": group.all_to_all_v(
                mine, [2, 0] if rank == 0 else [1, 1], [2, 1] if rank == 0 else [0, 1]
            ).tolist(),
        }

    first, second = run_ranks(tmp_path, work)
    assert first == {
        "all_reduce": [12.0, 14.0],
        "all_gather": [1.0, 2.0, 11.0, 12.0],
        "all_gather_v": [1.0, 11.0, 12.0],
        "reduce_scatter": [12.0],
        "reduce_scatter_v": [12.0, 14.0],
        "broadcast": [11.0, 12.0],
        "gather": None,
        "recv": [0.0],
        "all_to_all": [1.0, 11.0],
        "all_to_all_v": [1.0, 2.0, 11.0],
    }
    assert isinstance(second, dict)
    assert second["gather"] == [1.0, 2.0, 11.0, 12.0]
    assert second["recv"] == [7.0]
    assert second["reduce_scatter"] == [14.0]
    assert second["reduce_scatter_v"] == []
    assert second["all_to_all"] == [2.0, 12.0]
    assert second["all_to_all_v"] == [12.0]


def test_a_missing_peer_is_an_error_after_the_phases_deadline(tmp_path: Path) -> None:
    def work(group: TorchCommunicator) -> str:
        group.set_phase(DeadlinePhase.SERVE)
        if group.rank == 1:
            return "absent"
        with pytest.raises(DeviceError) as caught:
            group.all_reduce(torch.ones(1))
        return type(caught.value).__name__

    assert run_ranks(tmp_path, work)[0] in ("CommunicatorTimeout", "PeerLost")


def test_a_dtype_it_does_not_take_is_refused_with_those_it_takes(tmp_path: Path) -> None:
    def work(group: TorchCommunicator) -> None:
        with pytest.raises(UnsupportedError, match=r"complex64.*float32"):
            group.all_reduce(torch.ones(1, dtype=torch.complex64))

    run_ranks(tmp_path, work)
