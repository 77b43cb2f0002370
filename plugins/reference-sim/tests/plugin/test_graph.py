"""Capture and replay, through the runner that the core is given."""

from __future__ import annotations

import pytest
import torch
from dougong.contracts import UnsupportedError

from dougong_sim.device import control
from dougong_sim.graph import SimGraphRunner


@pytest.fixture
def runner(device: torch.device) -> SimGraphRunner:
    return SimGraphRunner(device)


def test_a_replay_reads_the_buffers_as_they_are_then(
    runner: SimGraphRunner, device: torch.device
) -> None:
    x = torch.ones(3, device=device)
    with runner.capture("double"):
        y = x * 2
    x.fill_(5)
    runner.prepare_replay([])
    with control.forbid_implicit_sync():
        runner.replay("double")
    assert y.tolist() == [10, 10, 10]


def test_graphs_are_kept_apart_by_key(runner: SimGraphRunner, device: torch.device) -> None:
    total = torch.zeros(1, device=device)
    for number in (1, 2):
        with runner.capture(number):
            total += number
    for number in (2, 1, 2):
        runner.replay(number)
    assert total.item() == 5
    assert control.counters()["graph_replay"] == 3


def test_a_block_may_end_in_another_function(runner: SimGraphRunner, device: torch.device) -> None:
    x = torch.ones(2, device=device)
    block = runner.capture("open")
    block.__enter__()
    y = x + 1
    block.__exit__(None, None, None)
    runner.replay("open")
    assert y.tolist() == [2, 2]


def test_memory_of_a_graph_is_counted_until_it_is_released(
    runner: SimGraphRunner, device: torch.device
) -> None:
    x = torch.ones(1 << 16, device=device)
    with runner.capture("large"):
        y = x * 2
    assert runner.memory_bytes() >= y.nbytes
    used = torch.accelerator.memory_allocated(device)
    del y
    runner.release("large")
    assert runner.memory_bytes() == 0
    assert torch.accelerator.memory_allocated(device) < used


def test_what_cannot_be_captured_is_named_and_the_device_goes_on(
    runner: SimGraphRunner, device: torch.device
) -> None:
    x = torch.ones(2, device=device)
    with pytest.raises(UnsupportedError, match=r"'bad' cannot be captured: .*item"):
        _fetch_inside(runner, x)
    with runner.capture("bad"):
        y = x + 1
    runner.replay("bad")
    assert y.tolist() == [2, 2]


def _fetch_inside(runner: SimGraphRunner, x: torch.Tensor) -> None:
    with runner.capture("bad"):
        (x + 1).sum().item()


def test_another_error_leaves_the_block_as_it_was_raised(
    runner: SimGraphRunner, device: torch.device
) -> None:
    with pytest.raises(ZeroDivisionError):
        _divide_inside(runner)
    assert runner.memory_bytes() == 0
    assert torch.ones(2, device=device).tolist() == [1, 1]


def _divide_inside(runner: SimGraphRunner) -> None:
    with runner.capture("torn"):
        torch.ones(1 // 0, device=runner.device)
