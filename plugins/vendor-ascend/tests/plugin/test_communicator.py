"""HCCL's options and timeouts, and what is made of other collectives; ranks are threads on gloo."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from dougong.contracts import ConfigError, DeadlinePhase, GroupKind, GroupOptions, UnsupportedError
from dougong.reference import TorchCommunicator
from torch._C._distributed_c10d import HashStore

from dougong_ascend.communicator import AscendCommunicator
from dougong_ascend.timeouts import (
    EXEC_TIMEOUT_S,
    exec_timeout_s,
    group_timeouts,
    settled_deadlines,
)

CPU = torch.device("cpu")
LONG = dict.fromkeys(DeadlinePhase, 30.0)


def options(folder: Path, rank: int = 0, size: int = 1, **named: Any) -> GroupOptions:
    return GroupOptions(
        kind=GroupKind.TENSOR,
        ranks=tuple(range(size)),
        rank=rank,
        init_method=(folder / "rendezvous").as_uri(),
        deadlines_s=LONG,
        options={"backend": "gloo", "address": "127.0.0.1", "emulates": False, **named},
    )


def on_two_ranks(
    folder: Path, part: Callable[[AscendCommunicator], Any], **named: Any
) -> list[Any]:
    """What ``part`` returns on each rank."""

    folder.mkdir(exist_ok=True)
    all_have_joined = threading.Barrier(2)  # whose peer leaves while it joins, fails to join

    def run(rank: int) -> Any:
        communicator = AscendCommunicator(options(folder, rank, 2, **named), CPU)
        try:
            all_have_joined.wait(30)
            return part(communicator)
        finally:
            communicator.destroy()

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(run, range(2)))


class FakeHccl(ModuleType):
    """As much of the vendor's module as a group is made with."""

    class ProcessGroupHCCL:
        """See the vendor's."""

        class Options:
            """See the vendor's."""

            hccl_config: dict[str, Any]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Groups that HCCL was asked to make: what torch hands over, and the vendor's options."""
    asked: list[tuple[Any, Any]] = []

    def create(opened: Any, vendor_options: Any) -> str:
        asked.append((opened, vendor_options))
        return "made"

    name = "torch_npu._C._distributed_c10d"
    monkeypatch.setitem(sys.modules, name, FakeHccl(name))
    registered = SimpleNamespace(creator_fn=create, extended_api=True)
    monkeypatch.setitem(dist.Backend._plugins, "HCCL", registered)
    return asked


def unjoined(options: GroupOptions) -> AscendCommunicator:
    """Of a group that nobody has met for."""
    communicator = AscendCommunicator.__new__(AscendCommunicator)
    communicator.options, communicator.device, communicator._emulates = options, CPU, False
    return communicator


@pytest.mark.parametrize(
    ("given", "seconds"),
    [({}, 1836), ({"HCCL_EXEC_TIMEOUT": "68"}, 68), ({"HCCL_EXEC_TIMEOUT": " "}, 1836),
     ({"HCCL_EXEC_TIMEOUT": "0"}, 1836)],
)  # fmt: skip
def test_the_vendor_s_timeout_is_read(given: dict[str, str], seconds: float) -> None:
    assert exec_timeout_s(given) == seconds


def test_a_timeout_that_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="HCCL_EXEC_TIMEOUT=soon is no number"):
        exec_timeout_s({"HCCL_EXEC_TIMEOUT": "soon"})


def test_deadlines_that_nobody_gave_are_longer_than_the_vendor_s_timeout() -> None:
    for vendor_s in (30.0, EXEC_TIMEOUT_S):
        settled = settled_deadlines({}, vendor_s)
        assert set(settled) == set(DeadlinePhase)
        assert min(settled.values()) > vendor_s


@pytest.mark.parametrize("vendor_s", [20.0, EXEC_TIMEOUT_S])
def test_who_knows_most_speaks_first(vendor_s: float) -> None:
    deadlines = settled_deadlines({DeadlinePhase.LOAD: 4000.0}, vendor_s)
    for phase, watch_s in group_timeouts(deadlines, vendor_s).items():
        assert vendor_s < watch_s < deadlines[phase]


@pytest.mark.parametrize("short", [300.0, 1836.0])
def test_the_inversion_is_refused_with_both_numbers(short: float) -> None:
    given = {DeadlinePhase.LOAD: 3000.0, DeadlinePhase.SERVE: short}
    with pytest.raises(ConfigError) as caught:
        settled_deadlines(given, EXEC_TIMEOUT_S)
    told = str(caught.value)
    assert "HCCL waits 1836 s" in told and f"serve: {short:g} s" in told
    assert "load" not in told and "HCCL_EXEC_TIMEOUT" in told


def test_a_group_over_hccl_is_refused_before_anybody_is_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HCCL_EXEC_TIMEOUT", raising=False)
    with pytest.raises(ConfigError, match="1836"):
        AscendCommunicator(options(tmp_path, backend="hccl"), CPU)


def test_a_longer_deadline_is_kept_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HCCL_EXEC_TIMEOUT", "20")
    seen: list[GroupOptions] = []
    monkeypatch.setattr(
        TorchCommunicator, "__init__", lambda self, options, device: seen.append(options)
    )
    AscendCommunicator(options(tmp_path, backend="hccl"), CPU)
    assert seen[0].deadlines_s == LONG
    assert "emulates" not in seen[0].options
    assert seen[0].options["backend_timeouts_s"] == dict.fromkeys(DeadlinePhase, 25.0)


def test_hccl_is_made_with_the_group_s_own_name_and_buffer(
    tmp_path: Path, made: list[tuple[Any, Any]]
) -> None:
    communicator = unjoined(options(tmp_path, rank=1, size=2, backend="hccl"))
    assert communicator.make_library(HashStore(), timedelta(seconds=7)) == "made"
    ((opened, vendor_options),) = made
    assert (opened.group_rank, opened.group_size) == (1, 2)
    assert opened.timeout == timedelta(seconds=7)
    assert opened.global_ranks_in_group == [0, 1]
    name = communicator._hccl_name
    assert name.startswith("dougong-tp-0-2-")
    assert vendor_options.hccl_config == {"hccl_buffer_size": 200, "group_name": name}


def test_groups_of_two_engines_have_two_names(tmp_path: Path) -> None:
    one, other = (unjoined(options(tmp_path / name, size=2)) for name in "ab")
    assert one._hccl_name != other._hccl_name
    assert unjoined(options(tmp_path / "a", 1, 2))._hccl_name == one._hccl_name
    assert len(unjoined(options(tmp_path, size=512))._hccl_name) < 128


def test_the_buffer_is_the_operator_s_choice(tmp_path: Path, made: list[tuple[Any, Any]]) -> None:
    unjoined(options(tmp_path, backend="hccl", hccl_buffer_mib=64)).make_library(
        HashStore(), timedelta(seconds=7)
    )
    assert made[0][1].hccl_config["hccl_buffer_size"] == 64


def test_another_backend_is_made_as_torch_makes_it(tmp_path: Path) -> None:
    communicator = AscendCommunicator(options(tmp_path), CPU)
    try:
        assert communicator.all_reduce(torch.ones(2)).tolist() == [1, 1]
    finally:
        communicator.destroy()


def collectives(communicator: AscendCommunicator) -> dict[str, Any]:
    mine = torch.tensor([[1, 2], [3, 4]]) * (communicator.rank + 1)
    sent = torch.tensor([7 + communicator.rank, 9], dtype=torch.int64)
    gathered = communicator.gather(mine.float(), dst=1, dim=1)
    return {
        "sum": communicator.all_reduce(mine).tolist(),
        "broadcast": communicator.broadcast(sent, src=1).tolist(),
        "in_place": sent.tolist(),
        "gathered": None if gathered is None else gathered.tolist(),
    }


@pytest.mark.parametrize("emulates", [False, True])
def test_what_310p_lacks_is_made_of_all_gather(tmp_path: Path, emulates: bool) -> None:
    first, second = on_two_ranks(tmp_path, collectives, emulates=emulates)
    assert first["sum"] == second["sum"] == [[3, 6], [9, 12]]
    assert first["broadcast"] == first["in_place"] == second["broadcast"] == [8, 9]
    assert first["gathered"] is None
    assert second["gathered"] == [[1, 2, 2, 4], [3, 4, 6, 8]]


def test_emulation_calls_neither_sum_nor_broadcast_of_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: TorchCommunicator, *args: Any) -> torch.Tensor:
        raise RuntimeError("310P has none")

    monkeypatch.setattr(TorchCommunicator, "broadcast", refuse)
    monkeypatch.setattr(TorchCommunicator, "all_reduce", refuse)
    assert len(on_two_ranks(tmp_path, collectives, emulates=True)) == 2
    with pytest.raises(RuntimeError, match="310P has none"):
        on_two_ranks(tmp_path / "again", collectives, emulates=False)


def test_dtypes_that_hccl_does_not_take(tmp_path: Path) -> None:
    communicator = unjoined(options(tmp_path))
    assert "float64" not in communicator.supported_dtypes("all_gather")
    assert "uint8" in communicator.supported_dtypes("all_gather")
    assert "uint8" not in communicator.supported_dtypes("all_reduce")
    with pytest.raises(UnsupportedError, match=r"all_reduce of torch\.uint8"):
        communicator.all_reduce(torch.ones(2, dtype=torch.uint8))


def test_the_allocator_is_set_up_unless_the_operator_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTORCH_NPU_ALLOC_CONF", raising=False)
    wanted = {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"}
    assert AscendCommunicator.rank_environment(0, 2) == wanted
    assert AscendCommunicator.rank_environment(0, 1) == {}
    monkeypatch.setenv("PYTORCH_NPU_ALLOC_CONF", "max_split_size_mb:64")
    assert AscendCommunicator.rank_environment(0, 2) == {}
