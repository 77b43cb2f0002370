"""Page-locked host memory, and the two mistakes people make with it."""

from __future__ import annotations

import gc

import torch

from dougong_sim.device import control
from dougong_sim.device import torch_module as sim
from tests.device.conftest import Timing


def test_a_pinned_buffer_written_before_its_copy_ran_sends_the_new_data(late_mode: Timing) -> None:
    for _ in range(20):
        buffer = torch.ones(4).pin_memory()
        on_device = buffer.to("sim", non_blocking=True)
        buffer.fill_(7)
        assert on_device.tolist() == [7, 7, 7, 7]


def test_a_pinned_buffer_may_be_written_after_its_event(any_mode: Timing) -> None:
    buffer, sent = torch.ones(4).pin_memory(), sim.Event()
    on_device = buffer.to("sim", non_blocking=True)
    sent.record()
    sent.synchronize()
    buffer.fill_(7)
    assert on_device.tolist() == [1, 1, 1, 1]


def test_a_result_read_before_it_arrived_is_old(late_mode: Timing) -> None:
    x = torch.ones(4, device="sim")
    for _ in range(20):
        buffer = torch.zeros(4).pin_memory()
        buffer.copy_(x * 3, non_blocking=True)
        assert buffer.tolist() == [0, 0, 0, 0]
        sim.synchronize()
        assert buffer.tolist() == [3, 3, 3, 3]


def test_ordinary_memory_is_read_at_the_call(any_mode: Timing) -> None:
    buffer = torch.ones(4)
    on_device = buffer.to("sim", non_blocking=True)
    buffer.fill_(7)
    assert on_device.tolist() == [1, 1, 1, 1]


def test_a_blocking_copy_has_happened_on_every_stream(any_mode: Timing) -> None:
    on_device, side = torch.ones(4).to("sim"), sim.Stream()
    with side:
        y = on_device * 2
    side.synchronize()
    assert control.host_view(y).tolist() == [2, 2, 2, 2]


def test_a_pinned_buffer_lives_until_its_copy_ran(late_mode: Timing) -> None:
    buffer = torch.ones(1 << 16).pin_memory()
    on_device = buffer.to("sim", non_blocking=True)
    del buffer
    gc.collect()
    assert on_device.sum().item() == 1 << 16


def test_memory_knows_whether_it_is_pinned() -> None:
    pinned = torch.empty(4, pin_memory=True)
    assert pinned.is_pinned()
    assert pinned[1:].is_pinned()
    assert not torch.empty(4).is_pinned()
    torch.accelerator.empty_host_cache()
