"""`torch.accelerator.Graph`: capture, replay, what a capture refuses, and whose memory it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dougong_sim.device import control
from dougong_sim.device import torch_module as sim
from tests.device.conftest import Timing


def test_a_replay_reads_the_buffers_as_they_are_then(any_mode: Timing) -> None:
    x = torch.zeros(4, device="sim")
    graph = torch.accelerator.Graph()
    with graph:
        y = x * 2 + 1
    for value in (3.0, 5.0):
        x.fill_(value)
        graph.replay()
        assert y.tolist() == [2 * value + 1] * 4


def test_a_capture_runs_nothing(any_mode: Timing) -> None:
    x = torch.zeros(4, device="sim")
    graph = torch.accelerator.Graph()
    with graph:
        x.add_(1)
    assert x.tolist() == [0, 0, 0, 0]
    graph.replay()
    graph.replay()
    assert x.tolist() == [2, 2, 2, 2]


def test_a_replay_is_one_launch() -> None:
    x = torch.zeros(4, device="sim")
    graph = torch.accelerator.Graph()
    with graph:
        for _ in range(5):
            x.add_(1)
    control.clear_counters()
    graph.replay()
    assert control.pending() == 5
    assert control.counters()["launches"] == 1
    assert control.counters()["graph_replay"] == 1


REFUSED: dict[str, Callable[[torch.Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "copy to the host": lambda x: x.cpu(),
    "copy from the host": lambda x: x.copy_(torch.ones(4), non_blocking=True),
    "nonzero": lambda x: x.nonzero(),
    "synchronize": lambda x: sim.synchronize(),
    "stream": lambda x: sim.current_stream().synchronize(),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_a_capture_refuses_what_cannot_be_replayed(call: Callable[[torch.Tensor], object]) -> None:
    x = torch.zeros(4, device="sim")
    graph = torch.accelerator.Graph()
    with pytest.raises(RuntimeError, match="not permitted while a graph is captured"), graph:
        call(x)
    assert (x + 1).tolist() == [1, 1, 1, 1]  # the thread captures no more


def test_pinned_buffers_are_read_at_each_replay(any_mode: Timing) -> None:
    buffer = torch.zeros(4).pin_memory()
    x = torch.zeros(4, device="sim")
    graph = torch.accelerator.Graph()
    with graph:
        x.copy_(buffer, non_blocking=True)
    buffer.fill_(3)
    graph.replay()
    assert x.tolist() == [3, 3, 3, 3]


def test_memory_of_a_capture_belongs_to_the_graph(any_mode: Timing) -> None:
    x = torch.ones(1000, device="sim")
    allocated, reserved = sim.memory_allocated(), sim.memory_reserved()
    graph = torch.accelerator.Graph()
    with graph:
        y = ((x + 1) * 2 - 1).sum()  # intermediate results are used again within
    held = sim.memory_reserved() - reserved
    assert 0 < held < 3 * x.nbytes + 2048
    assert sim.memory_allocated() - allocated < held
    filler = torch.zeros(100_000, device="sim")  # does not get the graph's memory
    graph.replay()
    assert y.item() == 3000
    assert filler.sum().item() == 0
    del graph, y
    sim.synchronize()
    del filler
    assert sim.memory_reserved() == reserved


def test_graphs_of_one_pool_share_memory() -> None:
    def capture(pool: tuple[int, int] | None) -> torch.accelerator.Graph:
        graph = torch.accelerator.Graph(pool=pool)
        with graph:
            torch.ones(1000, device="sim") * 2
        return graph

    first = capture(None)
    reserved = sim.memory_reserved()
    second = capture(first.pool())
    assert second.pool() == first.pool()
    assert sim.memory_reserved() == reserved
    third = capture(None)
    assert third.pool() != first.pool()
    assert sim.memory_reserved() > reserved


def test_a_graph_can_be_reset_and_captured_anew() -> None:
    x = torch.zeros(4, device="sim")
    graph = torch.accelerator.Graph()
    with graph:
        x.add_(1)
    with pytest.raises(RuntimeError, match="reset it first"), graph:
        x.add_(1)
    graph.reset()
    with pytest.raises(RuntimeError):
        graph.replay()
    with graph:
        x.add_(10)
    graph.replay()
    assert x[0].item() == 10


def test_captures_do_not_nest() -> None:
    graph, inner = torch.accelerator.Graph(), torch.accelerator.Graph()
    with graph, pytest.raises(RuntimeError, match="captures another graph"):
        inner.capture_begin()


def test_random_numbers_differ_between_replays() -> None:
    graph = torch.accelerator.Graph()
    with graph:
        x = torch.rand(4, device="sim")
    graph.replay()
    first = x.tolist()
    graph.replay()
    assert x.tolist() != first


def test_a_graph_lists_its_kernels(tmp_path: Path) -> None:
    x = torch.zeros(4, 4, device="sim")
    graph = torch.accelerator.Graph()
    with graph:
        x @ x
    graph.debug_dump(str(tmp_path / "graph.txt"))
    assert "aten::mm" in (tmp_path / "graph.txt").read_text().splitlines()


def test_a_replay_on_a_lost_device_raises() -> None:
    x = torch.zeros(4, device="sim")
    graph = torch.accelerator.Graph()
    with graph:
        x.add_(1)
    control.lose()
    with pytest.raises(torch.AcceleratorError, match="device lost"):
        graph.replay()
