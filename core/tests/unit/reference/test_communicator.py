"""What each collective gives, between ranks that are threads, over gloo."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from dougong.contracts import DeadlinePhase, GroupKind, UnsupportedError
from dougong.reference import TorchCommunicator
from tests.support.ranks import group_options, in_threads, run_group

SIZES = (1, 2, 3, 4)
Given = list[torch.Tensor]


def _given(size: int, *shape: int) -> Given:
    """Small integers, other ones on each rank: sums are exact."""
    generator = torch.Generator().manual_seed(size)
    return [torch.randint(-50, 50, shape, generator=generator).float() for _ in range(size)]


def _assert_same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for rank, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert torch.equal(one, other), f"rank {rank}: {one} is not {other}"


@pytest.mark.parametrize("size", SIZES)
def test_sums_and_copies_are_what_their_definitions_say(tmp_path: Path, size: int) -> None:
    given = _given(size, size, 7, 2 * size)

    def work(group: TorchCommunicator) -> dict[str, torch.Tensor]:
        mine = given[group.rank]
        before = mine.clone()
        found = {
            "all_reduce": group.all_reduce(mine),
            "reduce_scatter 0": group.reduce_scatter(mine),
            "reduce_scatter -1": group.reduce_scatter(mine, dim=-1),
            **{f"all_gather {dim}": group.all_gather(mine, dim=dim) for dim in (0, 1, 2, -1)},
        }
        assert torch.equal(mine, before)
        assert all(value.data_ptr() != mine.data_ptr() for value in found.values())
        assert all(value.is_contiguous() for value in found.values())
        found["broadcast"] = group.broadcast(mine.clone(), src=size - 1)
        return found

    found = run_group(tmp_path, size, work)
    total = torch.stack(given).sum(0)
    expected = {
        "all_reduce": [total] * size,
        "reduce_scatter 0": list(total.chunk(size, 0)),
        "reduce_scatter -1": list(total.chunk(size, -1)),
        **{f"all_gather {dim}": [torch.cat(given, dim)] * size for dim in (0, 1, 2, -1)},
        "broadcast": [given[-1]] * size,
    }
    for name, values in expected.items():
        _assert_same([answers[name] for answers in found], values)


@pytest.mark.parametrize("size", SIZES)
def test_parts_of_unlike_sizes_may_be_empty(tmp_path: Path, size: int) -> None:
    sizes = [0, 3, 1, 2][:size]
    given = _given(size, sum(sizes), 5)

    def work(group: TorchCommunicator) -> tuple[torch.Tensor, torch.Tensor]:
        mine = given[group.rank]
        gathered = group.all_gather_v(mine[: sizes[group.rank]], sizes)
        return gathered, group.reduce_scatter_v(mine, sizes)

    found = run_group(tmp_path, size, work)
    gathered = torch.cat([mine[:rows] for mine, rows in zip(given, sizes, strict=True)])
    _assert_same([one for one, _ in found], [gathered] * size)
    _assert_same([two for _, two in found], list(torch.split(torch.stack(given).sum(0), sizes)))


@pytest.mark.parametrize("size", SIZES)
def test_each_rank_sends_each_other_its_part(tmp_path: Path, size: int) -> None:
    counts = [[(sender + receiver) % 3 for receiver in range(size)] for sender in range(size)]
    even = _given(size, 2 * size, 3)

    def work(group: TorchCommunicator) -> tuple[torch.Tensor, torch.Tensor]:
        sends = counts[group.rank]
        receives = [row[group.rank] for row in counts]
        uneven = torch.full((sum(sends), 2), float(group.rank))
        return group.all_to_all(even[group.rank]), group.all_to_all_v(uneven, sends, receives)

    found = run_group(tmp_path, size, work)
    parts = [mine.chunk(size) for mine in even]
    _assert_same(
        [one for one, _ in found],
        [torch.cat([sent[receiver] for sent in parts]) for receiver in range(size)],
    )
    for receiver, (_, two) in enumerate(found):
        senders = [float(sender) for sender in range(size) for _ in range(counts[sender][receiver])]
        assert two[:, 0].tolist() == senders


@pytest.mark.parametrize("size", [2, 3])
def test_gather_is_for_one_rank_and_a_ring_of_sends_arrives(tmp_path: Path, size: int) -> None:
    given = _given(size, 3, 2)

    def work(group: TorchCommunicator) -> tuple[torch.Tensor | None, torch.Tensor]:
        mine, last = given[group.rank], group.size - 1
        gathered = group.gather(mine, dst=last, dim=1)
        group.send(mine, (group.rank + 1) % size)
        received = group.recv((3, 2), torch.float32, (group.rank - 1) % size)
        group.barrier()
        return gathered, received

    found = run_group(tmp_path, size, work)
    assert [gathered is None for gathered, _ in found] == [True] * (size - 1) + [False]
    assert torch.equal(found[-1][0], torch.cat(given, 1))  # type: ignore[arg-type]  # not None
    _assert_same([received for _, received in found], [given[-1], *given[:-1]])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int64])
def test_dtypes_stay_as_they_are(tmp_path: Path, dtype: torch.dtype) -> None:
    def work(group: TorchCommunicator) -> list[torch.Tensor]:
        mine = torch.arange(5).to(dtype) + group.rank
        return [group.all_reduce(mine), group.all_gather(mine)]

    for total, gathered in run_group(tmp_path, 2, work):
        assert total.dtype == gathered.dtype == dtype
        assert total.tolist() == [1, 3, 5, 7, 9]


REFUSED: dict[str, tuple[Callable[[TorchCommunicator], object], type[Exception], str]] = {
    "a dtype": (
        lambda group: group.all_reduce(torch.ones(1, dtype=torch.complex64)),
        UnsupportedError,
        r"complex64.*float32",
    ),
    "a transposed tensor": (
        lambda group: group.all_reduce(torch.ones(2, 3).t()),
        UnsupportedError,
        r"\(3, 2\) with strides \(1, 3\).*contiguous\(\)",
    ),
    "a tensor elsewhere": (
        lambda group: group.broadcast(torch.ones(2, device="meta")),
        UnsupportedError,
        r"on meta; this rank's device is cpu",
    ),
    "unequal parts to keep": (
        lambda group: group.reduce_scatter(torch.ones(3)),
        ValueError,
        r"reduce_scatter_v",
    ),
    "unequal parts to send": (
        lambda group: group.all_to_all(torch.ones(3)),
        ValueError,
        r"all_to_all_v",
    ),
    "sizes of another tensor": (
        lambda group: group.all_gather_v(torch.ones(3), [2, 2]),
        ValueError,
        r"sizes \[2, 2\], of 3 rows",
    ),
    "sizes for fewer ranks": (
        lambda group: group.all_gather_v(torch.ones(3), [3][: 1 - group.rank]),
        ValueError,
        r"one size per rank",
    ),
    "sizes for other ranks": (
        lambda group: group.all_to_all_v(torch.ones(2), [1, 1], [2]),
        ValueError,
        r"one size per rank",
    ),
}


def test_what_it_does_not_take_is_refused_and_the_group_goes_on(tmp_path: Path) -> None:
    def work(group: TorchCommunicator) -> list[float]:
        for call, kind, words in REFUSED.values():
            with pytest.raises(kind, match=words):
                call(group)
        return group.all_reduce(torch.ones(1)).tolist()

    assert run_group(tmp_path, 2, work) == [[2.0], [2.0]]


def test_groups_of_one_process_are_used_in_turns_and_at_once(tmp_path: Path) -> None:
    # Each rank is in the group of all and in one of two; thread by thread they meet in any order.
    members = {0: (0, 2), 2: (0, 2), 1: (1,)}

    def main(rank: int) -> list[list[float]]:
        everyone = TorchCommunicator(
            group_options(rank, (0, 1, 2), tmp_path / "all"), torch.device("cpu")
        )
        some = TorchCommunicator(
            group_options(
                rank, members[rank], tmp_path / f"some{members[rank][0]}", kind=GroupKind.EXPERT
            ),
            torch.device("cpu"),
        )
        mine = torch.tensor([float(rank)])
        found = [group.all_reduce(mine).tolist() for _ in range(3) for group in (everyone, some)]
        order = (everyone, some) if rank == 0 else (some, everyone)
        others = in_threads((0, 1), lambda which: order[which].all_reduce(mine).tolist())
        found += others if rank == 0 else others[::-1]
        for group in order:
            group.destroy()
        return found

    found = in_threads((0, 1, 2), main)
    assert found == [[[3.0], [2.0]] * 4, [[3.0], [1.0]] * 4, [[3.0], [2.0]] * 4]


def test_a_suspended_group_gives_its_library_back_and_is_the_same_after(tmp_path: Path) -> None:
    def work(group: TorchCommunicator) -> list[list[float]]:
        found = []
        for _ in range(2):
            found.append(group.all_reduce(torch.ones(1)).tolist())
            group.suspend()
            group.suspend()
            with pytest.raises(UnsupportedError, match="suspended"):
                group.all_reduce(torch.ones(1))
            group.resume()
        found.append(group.all_reduce(torch.ones(1)).tolist())
        return found

    assert run_group(tmp_path, 3, work) == [[[3.0]] * 3] * 3


def test_a_destroyed_group_is_over_and_leaves_nothing_behind(tmp_path: Path) -> None:
    run_group(tmp_path, 2, lambda group: group.barrier())  # what stays for good is there after it
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))

    def work(group: TorchCommunicator) -> None:
        group.all_reduce(torch.ones(1))
        group.barrier()
        group.destroy()
        group.destroy()
        with pytest.raises(UnsupportedError, match="destroyed"):
            group.all_reduce(torch.ones(1))
        with pytest.raises(UnsupportedError, match="make a new group"):
            group.resume()

    (tmp_path / "again").mkdir()
    run_group(tmp_path / "again", 2, work)
    assert threading.active_count() <= threads
    assert len(os.listdir("/proc/self/fd")) <= files


def test_no_process_wide_group_of_torch_is_touched(tmp_path: Path) -> None:
    run_group(tmp_path, 2, lambda group: group.all_reduce(torch.ones(1)))
    assert not dist.is_initialized()


def test_a_backend_that_nobody_registered_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"'fabric'.*import_kernels"):
        run_group(tmp_path, 1, lambda group: None, options={"backend": "fabric"})


def test_the_librarys_own_time_is_over_before_the_deadline(tmp_path: Path) -> None:
    class Recording(TorchCommunicator):
        def make_library(self, store: Store, timeout: timedelta) -> Any:
            given.append(timeout)
            return SimpleNamespace(set_timeout=given.append, shutdown=lambda: None)

    given: list[timedelta] = []
    options = group_options(0, (0,), tmp_path / "meeting", load_s=20.0, serve_s=10.0)
    group = Recording(options, torch.device("cpu"))
    group.set_phase(DeadlinePhase.SERVE)
    group.destroy()
    assert [timeout.total_seconds() for timeout in given] == [16.0, 8.0]
