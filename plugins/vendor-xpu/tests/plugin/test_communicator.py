"""XCCL's backend object, what it is given, and timeouts in the right order."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dougong.contracts import DeadlinePhase, GroupKind, GroupOptions, UnsupportedError
from dougong.reference import TorchCommunicator
from torch.distributed import distributed_c10d

from dougong_xpu.communicator import XpuCommunicator


def options(**given: Any) -> GroupOptions:
    return GroupOptions(
        kind=GroupKind.TENSOR,
        ranks=(0, 1),
        rank=1,
        init_method="tcp://127.0.0.1:1",
        deadlines_s={DeadlinePhase.SERVE: 300.0, DeadlinePhase.LOAD: 1800.0},
        options=given,
    )


@pytest.fixture
def communicator(monkeypatch: pytest.MonkeyPatch) -> XpuCommunicator:
    """Of rank 1 of 2; it has joined nothing."""
    calls: list[torch.Tensor] = []
    monkeypatch.setattr(
        TorchCommunicator,
        "__init__",
        lambda self, options, device: setattr(self, "options", options),
    )
    monkeypatch.setattr(XpuCommunicator, "all_reduce", lambda self, x: calls.append(x))
    made = XpuCommunicator(options(), torch.device("cpu"))
    assert [one.tolist() for one in calls] == [[0.0]], "oneCCL is warmed up once, in load"
    return made


def test_the_library_gets_rank_size_and_its_own_timeout(
    communicator: XpuCommunicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Made(SimpleNamespace):
        Options = SimpleNamespace

        def __init__(self, store: str, rank: int, size: int, options: Any) -> None:
            super().__init__(store=store, rank=rank, size=size, options=options)

    monkeypatch.setattr(distributed_c10d, "ProcessGroupXCCL", Made, raising=False)
    made = communicator.make_library("store", timedelta(seconds=240))
    assert (made.store, made.rank, made.size) == ("store", 1, 2)
    assert made.options._timeout == timedelta(seconds=240)


def test_a_torch_without_xccl_is_named(communicator: XpuCommunicator) -> None:
    assert not hasattr(distributed_c10d, "ProcessGroupXCCL"), "this torch has it"
    with pytest.raises(UnsupportedError, match="has no XCCL"):
        communicator.make_library("store", timedelta(seconds=240))


def test_a_timeout_of_the_library_behind_the_deadline_is_refused() -> None:
    late = options(backend_timeouts_s={DeadlinePhase.SERVE: 300.0})
    with pytest.raises(UnsupportedError, match="serve: 300 s of 300 s"):
        XpuCommunicator(late, torch.device("cpu"))


def test_a_failed_warm_up_leaves_no_group_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[bool] = []

    def fail(self: XpuCommunicator, x: torch.Tensor) -> None:
        raise RuntimeError("oneCCL: transport")

    monkeypatch.setattr(TorchCommunicator, "__init__", lambda self, options, device: None)
    monkeypatch.setattr(XpuCommunicator, "all_reduce", fail)
    monkeypatch.setattr(XpuCommunicator, "destroy", lambda self: left.append(True))
    with pytest.raises(RuntimeError, match="transport"):
        XpuCommunicator(options(), torch.device("cpu"))
    assert left == [True]


def test_a_rank_s_environment_says_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CCL_ATL_TRANSPORT", raising=False)
    environment = XpuCommunicator.rank_environment(1, 4)
    assert environment["LOCAL_RANK"] == "1"
    assert environment["LOCAL_WORLD_SIZE"] == "4"
    assert environment["CCL_ATL_TRANSPORT"] == "ofi"
    monkeypatch.setenv("CCL_ATL_TRANSPORT", "mpi")
    assert XpuCommunicator.rank_environment(1, 4)["CCL_ATL_TRANSPORT"] == "mpi", "the user's own"


def test_sums_and_copies_take_the_same_dtypes(communicator: XpuCommunicator) -> None:
    assert "bfloat16" in communicator.supported_dtypes("all_reduce")
    assert "bool" not in communicator.supported_dtypes("broadcast")
