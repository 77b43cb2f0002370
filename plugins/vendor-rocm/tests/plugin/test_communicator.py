from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from dougong.contracts import ConfigError, DeadlinePhase, GroupKind, GroupOptions, UnsupportedError

from dougong_rocm.communicator import RcclCommunicator


def options(**given: Any) -> GroupOptions:
    return GroupOptions(
        kind=GroupKind.TENSOR,
        ranks=(4, 5),
        rank=5,
        init_method="tcp://127.0.0.1:1",
        deadlines_s={DeadlinePhase.SERVE: 60.0},
        options=given,
    )


@pytest.fixture
def unjoined() -> RcclCommunicator:
    """A group whose parts are made one by one."""
    made = RcclCommunicator.__new__(RcclCommunicator)
    made.options, made.device = options(is_high_priority_stream=True), torch.device("cuda", 0)
    return made


def test_rccl_is_made_with_its_own_timeout(
    unjoined: RcclCommunicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Library:
        Options = SimpleNamespace

        def __init__(self, *args: Any) -> None:
            self.args = args

    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(dist, "ProcessGroupNCCL", Library, raising=False)
    store, timeout = object(), timedelta(seconds=48)
    made = unjoined.make_library(store, timeout)
    assert made.args[:3] == (store, 1, 2)
    assert made.args[3]._timeout == timeout
    assert made.args[3].is_high_priority_stream is True


def test_a_torch_without_rccl_is_refused(
    unjoined: RcclCommunicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)
    with pytest.raises(UnsupportedError, match="without RCCL"):
        unjoined.make_library(object(), timedelta(seconds=1))


@pytest.mark.parametrize("timeout_s", [60.0, 90.0])
def test_a_timeout_that_is_not_before_the_deadline_is_refused(timeout_s: float) -> None:
    given = options(backend_timeouts_s={DeadlinePhase.SERVE: timeout_s})
    with pytest.raises(ConfigError, match=f"serve: {timeout_s:g} s of RCCL, 60 s of the engine"):
        RcclCommunicator(given, torch.device("cuda", 0))


def test_torchs_watchdogs_leave_the_process_alone() -> None:
    declared = RcclCommunicator.rank_environment(1, 2)
    assert declared["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "2"
    assert declared["TORCH_NCCL_ENABLE_MONITORING"] == "0"
    assert RcclCommunicator.rank_environment(0, 1) == {}
