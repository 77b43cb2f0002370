"""Streams and events: order where it was asked for, and none where it was not."""

from __future__ import annotations

import pytest
import torch

from dougong_sim.device import control
from dougong_sim.device import torch_module as sim
from tests.device.conftest import Timing


def _read_on_side_stream(*, is_waiting: bool) -> float:
    main, side = sim.current_stream(), sim.Stream()
    x = torch.zeros(4, device="sim")
    sim.synchronize()
    x.add_(1)
    if is_waiting:
        side.wait_stream(main)
    with side:
        y = x * 10
    side.synchronize()
    first = control.host_view(y)[0].item()
    sim.synchronize()
    return float(first)


def test_a_missing_wait_between_streams_reads_stale_data(late_mode: Timing) -> None:
    assert [_read_on_side_stream(is_waiting=False) for _ in range(20)] == [0] * 20


def test_wait_stream_orders_two_streams(any_mode: Timing) -> None:
    assert [_read_on_side_stream(is_waiting=True) for _ in range(20)] == [10] * 20


def test_wait_event_orders_two_streams(any_mode: Timing) -> None:
    side, produced = sim.Stream(), sim.Event()
    x = torch.zeros(4, device="sim")
    sim.synchronize()
    x.add_(1)
    produced.record()
    x.add_(100)  # after the event: not waited for
    side.wait_event(produced)
    with side:
        y = x * 10
    side.synchronize()
    assert control.host_view(y)[0].item() >= 10


def test_synchronizing_one_stream_leaves_the_other_alone() -> None:
    side = sim.Stream()
    torch.ones(4, device="sim")
    with side:
        torch.ones(4, device="sim")
    side.synchronize()
    assert control.pending() == 1


def test_an_event_knows_when_it_happened(any_mode: Timing) -> None:
    begin, end = sim.Event(enable_timing=True), sim.Event(enable_timing=True)
    begin.record()
    control.inject("slow", milliseconds=20)
    torch.ones(4, device="sim")
    end.record()
    end.synchronize()
    assert 15 < begin.elapsed_time(end) < 30_000  # milliseconds


def test_the_time_of_an_event_that_has_not_happened_is_refused() -> None:
    begin, end = sim.Event(), sim.Event()
    begin.record()
    end.record()
    with pytest.raises(RuntimeError, match="must be completed"):
        begin.elapsed_time(end)


def test_an_event_that_was_never_recorded_holds_nobody_up(any_mode: Timing) -> None:
    event = torch.Event("sim")
    assert event.query()
    event.synchronize()
    event.wait(sim.current_stream())


def test_a_stream_answers_whether_it_is_done() -> None:
    side = sim.Stream()
    with side:
        torch.ones(4, device="sim")
    assert not side.query()
    side.synchronize()
    assert side.query()


def test_streams_come_from_a_ring() -> None:
    made = {sim.Stream(1).stream_id for _ in range(80)}
    assert made == set(range(1, 33))


def test_each_thread_of_the_host_has_its_own_current_stream() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with sim.Stream(), ThreadPoolExecutor(1) as pool:
        elsewhere = pool.submit(sim.current_stream).result()
        assert elsewhere.stream_id == 0
        assert sim.current_stream().stream_id != 0


def test_two_threads_of_the_host_can_launch_at_once(any_mode: Timing) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(start: int) -> float:
        with sim.Stream():
            x = torch.full((8,), float(start), device="sim")
            for _ in range(50):
                x = x + 1
            return float(x.sum().item())

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, [0, 1000])) == [400, 8400]


def test_a_copy_between_devices_keeps_the_order_of_both_streams(any_mode: Timing) -> None:
    x = torch.zeros(4, device="sim:0")
    x.add_(1)
    y = x.to("sim:3", non_blocking=True)
    x.add_(1)
    y.add_(10)
    back = y.to("sim:0")
    assert back.tolist() == [11, 11, 11, 11]
    assert control.counters()["p2p"] == 2
