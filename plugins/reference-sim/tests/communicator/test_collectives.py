"""Collectives of the device: right numbers, in stream order, without the host waiting."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from dougong.contracts import UnsupportedError

from dougong_sim.communicator import SimCommunicator
from dougong_sim.device import control
from dougong_sim.device.environment import Mode
from tests.communicator.ranks import run_group, synchronize

Answers = dict[str, torch.Tensor]


def _given(size: int, *shape: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(size)
    return [torch.randint(-50, 50, shape, generator=generator).float() for _ in range(size)]


def _every_method(group: SimCommunicator, mine: torch.Tensor) -> Answers:
    """What each gives on this rank; nothing is read before all are enqueued."""
    size, rank = group.size, group.rank
    sizes = [0, 3, 1, 2][:size]
    gathered = group.gather(mine, dst=0, dim=1)
    group.send(mine, (rank + 1) % size)
    return {
        "all_reduce": group.all_reduce(mine),
        "all_gather": group.all_gather(mine, dim=-1),
        "all_gather_v": group.all_gather_v(mine[: sizes[rank]], sizes),
        "reduce_scatter": group.reduce_scatter(mine, dim=1),
        "reduce_scatter_v": group.reduce_scatter_v(mine[: sum(sizes)], sizes),
        "broadcast": group.broadcast(mine.clone(), src=size - 1),
        "gather": mine if gathered is None else gathered,
        "recv": group.recv(mine.shape, mine.dtype, (rank - 1) % size),
        "all_to_all": group.all_to_all(mine[: 2 * size]),
        "all_to_all_v": group.all_to_all_v(mine[:size], [1] * size, [1] * size),
    }


def _expected(given: list[torch.Tensor]) -> list[Answers]:
    size, total = len(given), torch.stack(given).sum(0)
    sizes = [0, 3, 1, 2][:size]
    cut = total[: sum(sizes)]
    return [
        {
            "all_reduce": total,
            "all_gather": torch.cat(given, -1),
            "all_gather_v": torch.cat([one[:rows] for one, rows in zip(given, sizes, strict=True)]),
            "reduce_scatter": total.chunk(size, 1)[rank],
            "reduce_scatter_v": torch.split(cut, sizes)[rank],
            "broadcast": given[-1],
            "gather": torch.cat(given, 1) if rank == 0 else given[rank],
            "recv": given[rank - 1],
            "all_to_all": torch.cat([one[2 * rank : 2 * rank + 2] for one in given]),
            "all_to_all_v": torch.stack([one[rank] for one in given]),
        }
        for rank in range(size)
    ]


@pytest.mark.parametrize(
    ("size", "mode"), [(2, "thread"), (3, "thread"), (4, "thread"), (3, "eager")]
)
def test_every_method_gives_what_its_definition_says(tmp_path: Path, size: int, mode: Mode) -> None:
    control.set_mode(mode, delay_us=1000 if mode == "thread" else 0)
    given = _given(size, 8, size, 5)
    there = [one.to(f"sim:{rank}") for rank, one in enumerate(given)]

    def work(group: SimCommunicator) -> Answers:
        found = _every_method(group, there[group.rank])
        synchronize(group)
        return found

    with control.forbid_implicit_sync():
        answers = run_group(tmp_path, size, work)
    for rank, expected in enumerate(_expected(given)):
        assert torch.equal(there[rank].cpu(), given[rank])
        for name, value in expected.items():
            assert torch.equal(answers[rank][name].cpu(), value), f"{name} on rank {rank}"


def test_a_call_returns_before_the_device_has_come_to_it(tmp_path: Path) -> None:
    control.set_mode("thread", delay_us=60_000_000)  # what is waited for starts at once

    def work(group: SimCommunicator) -> tuple[int, list[float]]:
        mine = torch.full((3,), float(group.rank), device=group.device)
        total = group.all_reduce(mine + 1)
        waiting = control.pending(group.rank)
        return waiting, (total * 2).tolist()

    for waiting, total in run_group(tmp_path, 2, work):
        assert waiting > 0
        assert total == [6.0] * 3


def test_a_barrier_waits_for_the_device(tmp_path: Path) -> None:
    control.set_mode("thread", delay_us=20_000)

    def work(group: SimCommunicator) -> int:
        (torch.ones(3, device=group.device) + 1).add_(1)
        group.barrier()
        return control.pending(group.rank)

    assert run_group(tmp_path, 2, work) == [0, 0]


def test_a_suspended_group_comes_back(tmp_path: Path) -> None:
    def work(group: SimCommunicator) -> list[float]:
        mine = torch.ones(1, device=group.device)
        total = group.all_reduce(mine)
        group.suspend()
        group.resume()
        return group.all_reduce(total).tolist()

    assert run_group(tmp_path, 2, work) == [[4.0]] * 2


def test_what_the_library_does_not_add_up_is_refused_and_still_copied(tmp_path: Path) -> None:
    def work(group: SimCommunicator) -> list[int]:
        mine = torch.full((2,), group.rank, dtype=torch.uint8, device=group.device)
        with pytest.raises(UnsupportedError, match="uint8"):
            group.all_reduce(mine)
        return group.all_gather(mine).tolist()

    assert run_group(tmp_path, 2, work) == [[0, 0, 1, 1]] * 2


def test_lazy_devices_never_meet_so_such_a_group_is_refused(tmp_path: Path) -> None:
    control.set_mode("lazy")
    with pytest.raises(RuntimeError, match=r"group of 2 ranks.*SIM_MODE=thread"):
        run_group(tmp_path, 2, lambda group: None)
    (tmp_path / "alone").mkdir()
    assert run_group(
        tmp_path / "alone",
        1,
        lambda group: group.all_reduce(torch.ones(2, device="sim:0")).tolist(),
    ) == [[1.0, 1.0]]


def test_a_rank_is_told_the_mode_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIM_MODE", raising=False)
    assert SimCommunicator.rank_environment(1, 2) == {"SIM_MODE": "thread"}
    assert SimCommunicator.rank_environment(0, 1) == {}
    monkeypatch.setenv("SIM_MODE", "eager")
    assert SimCommunicator.rank_environment(1, 2) == {}
