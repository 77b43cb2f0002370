"""Ranks as processes: a death, and what users of torch.distributed itself find."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from dougong_sim.communicator import SimCommunicator
from dougong_sim.device import collectives, control
from dougong_sim.errors import classify
from tests.communicator.ranks import PATIENT_S, group_options, synchronize

SIZE = 3
# Its parent imports torch once for all ranks, and uses no device.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["dougong_sim.device.collectives", "tests.communicator.ranks"])


def _rank_main(rank: int, folder: str, says: Connection) -> None:
    torch.set_num_threads(1)
    collectives.register()
    control.set_mode("thread")
    torch.accelerator.set_device_index(rank)
    says.send(_use_torch_distributed(rank, Path(folder)))
    device = torch.device("sim", rank)
    group = SimCommunicator(group_options(rank, SIZE, Path(folder) / "own"), device)
    mine = torch.ones(1, device=device)
    group.all_reduce(mine)
    synchronize(group)
    says.send("ready")
    if rank == 2:
        says.recv()  # and is killed here
    group.all_reduce(mine)
    try:
        synchronize(group)
    except torch.AcceleratorError as exc:
        fault = classify(exc)
        explained = group.explain(exc)
        says.send([fault.kind.__name__ if fault else "", type(explained).__name__, str(explained)])
    says.recv()  # until all is heard


def _use_torch_distributed(rank: int, folder: Path) -> dict[str, object]:
    """What each call gives, or how it fails."""
    dist.init_process_group(
        "simccl",
        init_method=(folder / "torch").as_uri(),
        rank=rank,
        world_size=SIZE,
        timeout=timedelta(seconds=PATIENT_S),
    )
    device = f"sim:{rank}"
    mine = torch.arange(float(SIZE), device=device) + 10 * rank
    other = torch.zeros(SIZE, device=device)

    def into(call: Callable[[torch.Tensor], object], *shape: int) -> list[float]:
        out = torch.zeros(shape or (SIZE,), device=device)
        call(out)
        return out.flatten().tolist()

    def in_place(call: Callable[[torch.Tensor], object]) -> list[float]:
        changed = mine.clone()
        call(changed)
        return changed.tolist()

    def ring(out: torch.Tensor) -> None:
        calls = [
            dist.P2POp(dist.isend, mine, (rank + 1) % SIZE),
            dist.P2POp(dist.irecv, out, (rank - 1) % SIZE),
        ]
        for work in dist.batch_isend_irecv(calls):
            work.wait()

    parts = [torch.full((1,), float(index), device=device) for index in range(SIZE)]
    gathered: list[object] = [None] * SIZE
    dist.all_gather_object(gathered, {"rank": rank})
    pair = dist.new_group([0, 2])
    found: dict[str, object] = {
        "max": in_place(lambda x: dist.all_reduce(x, op=dist.ReduceOp.MAX)),
        "async": in_place(lambda x: dist.all_reduce(x, async_op=True).wait()),
        "reduce": in_place(lambda x: dist.reduce(x, dst=0))[: SIZE * (rank == 0)],
        "all_gather": into(lambda out: dist.all_gather(list(out.unbind()), mine), SIZE, SIZE),
        "into_tensor": into(lambda out: dist.all_gather_into_tensor(out, mine), SIZE * SIZE),
        "scatter": into(lambda out: dist.scatter(out, parts if rank == 0 else None, src=0), 1),
        "reduce_scatter": into(lambda out: dist.reduce_scatter_tensor(out, mine), 1),
        "reduce_scatter of parts": into(lambda out: dist.reduce_scatter(out, parts), 1),
        "all_to_all": into(lambda out: dist.all_to_all(list(out.unsqueeze(1).unbind()), parts)),
        "ring": into(ring),
        "objects": gathered,
        "pair": in_place(lambda x: dist.all_reduce(x, group=pair)) if rank != 1 else [],
    }
    dist.barrier()
    try:
        dist.all_gather_into_tensor(torch.zeros(SIZE), other[:1])
    except RuntimeError as exc:
        found["host tensor"] = str(exc).partition("\n")[0]
    dist.destroy_process_group()
    return found


def _expected(rank: int) -> dict[str, object]:
    rows = [[10.0 * giver + column for column in range(SIZE)] for giver in range(SIZE)]
    total = [sum(column) for column in zip(*rows, strict=True)]
    flat = [value for row in rows for value in row]
    return {
        "max": rows[-1],
        "async": total,
        "reduce": total if rank == 0 else [],
        "all_gather": flat,
        "into_tensor": flat,
        "scatter": [float(rank)],
        "reduce_scatter": [total[rank]],
        "reduce_scatter of parts": [float(SIZE * rank)],
        "all_to_all": [float(rank)] * SIZE,
        "ring": rows[rank - 1],
        "objects": [{"rank": index} for index in range(SIZE)],
        "pair": [] if rank == 1 else [a + b for a, b in zip(rows[0], rows[2], strict=True)],
        "host tensor": "simccl: a tensor on cpu leaked into c10d::_allgather_base",
    }


def _heard(connection: Connection) -> object:
    assert connection.poll(PATIENT_S), "nothing heard"
    heard: object = connection.recv()
    return heard


@pytest.mark.timeout(180)
def test_processes_compute_together_and_lose_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = []
    for rank in range(SIZE):
        here, there = PROCESSES.Pipe()
        process = PROCESSES.Process(target=_rank_main, args=(rank, str(tmp_path), there))
        process.start()
        there.close()
        ranks.append((process, here))
    try:
        for rank, (_, connection) in enumerate(ranks):
            assert _heard(connection) == _expected(rank)
        assert [_heard(connection) for _, connection in ranks] == ["ready"] * SIZE
        os.kill(ranks[2][0].pid or 0, signal.SIGKILL)
        found = [_heard(connection) for _, connection in ranks[:2]]
    finally:
        for process, _ in ranks:
            process.kill()
            process.join()
    for heard in found:
        assert isinstance(heard, list)
        assert heard[:2] == ["PeerLost", "PeerLost"]
        assert "rank 2" in heard[2]
