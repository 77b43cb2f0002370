"""Captured steps, over a stand-in of the vendor's module."""

from __future__ import annotations

import pytest
import torch
from dougong.contracts import GraphLevel, UnsupportedError

from dougong_ascend.graph import MAX_GRAPHS, AscendGraphRunner
from dougong_ascend.slots import PADDING_SLOTS
from tests.plugin.npu_module import FakeNpu


@pytest.fixture
def runner(npu: FakeNpu) -> AscendGraphRunner:
    """On a device type that torch has a name for; `npu` answers for it."""
    return AscendGraphRunner(torch.device("maia", 0))


def test_graphs_share_a_pool_whose_growth_is_counted(
    runner: AscendGraphRunner, npu: FakeNpu
) -> None:
    npu.reserved = 1000
    with runner.capture("a"):
        npu.reserved += 300
    with runner.capture("b"):
        npu.reserved += 20
    assert runner.memory_bytes() == 320
    assert npu.pools[0] is npu.pools[1] is not None
    assert npu.streams[0] is npu.streams[1]
    runner.replay("a")
    runner.release("a")
    runner.release("b")
    assert npu.asked == ["replay", "reset", "reset"]
    assert runner.memory_bytes() == 0


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("aclrtMemcpyAsync failed, error code is 107030", "copies from the host or waits"),
        ("aclrtCreateStream, error code is 207008", "--graph-sizes"),
        ("Alloc sq cq fail", "HDK 25.5.1"),
    ],
)
def test_what_cannot_be_captured_is_named_and_leaves_no_graph(
    runner: AscendGraphRunner, told: str, reason: str
) -> None:
    with pytest.raises(UnsupportedError, match=reason) as caught, runner.capture("a"):
        raise RuntimeError(told)
    assert "'a'" in str(caught.value)
    with runner.capture("a"):
        pass
    runner.replay("a")


def test_the_cause_is_found_behind_the_error_of_ending_a_broken_capture(
    runner: AscendGraphRunner, npu: FakeNpu
) -> None:
    npu.capture_error = RuntimeError("capture was invalidated; error code is 107030")
    with pytest.raises(UnsupportedError, match="waits"), runner.capture("a"):
        pass


def test_other_errors_pass_as_they_are(runner: AscendGraphRunner) -> None:
    with pytest.raises(RuntimeError, match="507015"), runner.capture("a"):
        raise RuntimeError("error code is 507015")
    with pytest.raises(KeyError), runner.capture("a"):
        raise KeyError("a bug")


def test_nothing_is_captured_where_each_launch_is_waited_for(
    runner: AscendGraphRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASCEND_LAUNCH_BLOCKING", "1")
    with pytest.raises(UnsupportedError, match="unset it, or use --enforce-eager"):
        runner.capture("a")


def test_as_many_graphs_as_there_are_streams_around_attention() -> None:
    support = AscendGraphRunner.support
    assert (support.level, support.max_graphs) == (GraphLevel.PIECEWISE, MAX_GRAPHS)


def test_no_captured_step_has_more_padding_than_there_are_slots_for_it() -> None:
    sizes = AscendGraphRunner.support.sizes
    assert list(sizes) == sorted(set(sizes))
    assert sizes[0] == 1 and sizes[-1] == PADDING_SLOTS
