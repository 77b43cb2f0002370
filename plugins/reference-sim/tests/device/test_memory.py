"""Limits, accounting, poison, and the order in which freed memory is used again."""

from __future__ import annotations

import pytest
import torch

from dougong_sim.device import control
from dougong_sim.device import torch_module as sim
from dougong_sim.device.environment import Mode
from tests.device.conftest import Timing

MIB = 1 << 20


def test_beyond_the_limit_there_is_no_memory(any_mode: Timing) -> None:
    control.set_memory_limit(sim.memory_reserved() + MIB)
    with pytest.raises(torch.OutOfMemoryError, match=r"sim:0 out of memory.*4194304 bytes"):
        torch.empty(4 * MIB, dtype=torch.uint8, device="sim")
    first = torch.empty(MIB * 3 // 4, dtype=torch.uint8, device="sim")
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(MIB * 3 // 4, dtype=torch.uint8, device="sim")
    del first
    torch.empty(MIB * 3 // 4, dtype=torch.uint8, device="sim")


def test_an_injected_shortage_hits_one_allocation(any_mode: Timing) -> None:
    control.inject("oom", after=2)
    kept = [torch.empty(4, device="sim") for _ in range(2)]
    with pytest.raises(torch.OutOfMemoryError, match="injected"):
        torch.empty(4, device="sim")
    kept.append(torch.empty(4, device="sim"))


def test_the_limit_is_of_one_device() -> None:
    control.set_memory_limit(1024, device=2)
    with pytest.raises(torch.OutOfMemoryError, match="sim:2"):
        torch.empty(1024, device="sim:2")
    torch.empty(1024, device="sim:1")


def test_memory_is_accounted() -> None:
    before, (free_before, total) = sim.memory_allocated(), sim.mem_get_info()
    sim.reset_peak_memory_stats()
    x = torch.empty(MIB, dtype=torch.uint8, device="sim")
    assert sim.memory_allocated() - before == MIB
    assert sim.mem_get_info() == (free_before - MIB, total)
    del x
    assert sim.memory_allocated() == before
    assert sim.max_memory_allocated() - before == MIB
    sim.reset_peak_memory_stats()
    assert sim.max_memory_allocated() == before
    sim.empty_cache()
    assert sim.mem_get_info() == (free_before, total)


def test_a_long_queue_holds_no_memory() -> None:
    x = torch.zeros(MIB, dtype=torch.uint8, device="sim")
    control.set_memory_limit(sim.memory_reserved() + 2 * MIB)
    for _ in range(100):
        x = x + 1  # two at a time: the one before is freed while its reader is still queued
    assert control.pending() == 101
    assert x[0].item() == 100


def test_new_memory_is_poison(any_mode: Timing) -> None:
    assert torch.empty(3, device="sim").isnan().all().item()
    assert torch.empty(3, dtype=torch.bfloat16, device="sim").isnan().all().item()
    assert torch.empty(3, dtype=torch.long, device="sim").tolist() == [-1, -1, -1]
    assert torch.empty(MIB, device="sim").isnan().all().item()


def test_used_memory_is_poisoned_again(any_mode: Timing) -> None:
    for size in (100, 2 * MIB):
        for _ in range(4):
            x = torch.ones(size, device="sim")
            del x
            assert torch.empty(size, device="sim").isnan().all().item()


def test_freed_memory_is_overwritten(any_mode: Timing) -> None:
    x = torch.ones(8, dtype=torch.uint8, device="sim")
    sim.synchronize()
    bytes_of_x = control.host_view(x)
    assert bytes_of_x.tolist() == [1] * 8
    del x
    sim.synchronize()
    assert bytes_of_x.tolist() == [0xFE] * 8


def _use_on_side_stream_and_free(*, is_recorded: bool) -> list[float]:
    """A tensor of the main stream, used on another and dropped before that has run."""
    main, side = sim.current_stream(), sim.Stream()
    x = torch.ones(64, device="sim")
    side.wait_stream(main)
    with side:
        control.inject("slow", milliseconds=5)  # in eager mode it is over before the free
        y = x * 2
    if is_recorded:
        x.record_stream(side)
    del x
    again = torch.zeros(64, device="sim")  # the same memory, unless it is known to be in use
    main.synchronize()
    side.synchronize()
    assert again.sum().item() == 0
    return y.tolist()


def test_memory_freed_under_another_stream_is_overwritten() -> None:
    modes: tuple[Mode, ...] = ("lazy", "thread")
    for mode in modes:
        control.set_mode(mode)
        assert _use_on_side_stream_and_free(is_recorded=False) != [2] * 64


def test_record_stream_keeps_memory_until_the_other_stream_is_done(any_mode: Timing) -> None:
    for _ in range(10):
        assert _use_on_side_stream_and_free(is_recorded=True) == [2] * 64


def test_memory_goes_from_hand_to_hand_in_stream_order(any_mode: Timing) -> None:
    """Many sizes on two streams, every value checked: no block is handed out too early."""
    side = sim.Stream()
    sums = []
    for i in range(60):
        with side if i % 3 == 0 else sim.default_stream():
            x = torch.full((1 + 37 * i,), float(i), device="sim")
            sums.append((x + 1).sum())
    sim.synchronize()
    assert [s.item() for s in sums] == [(1 + 37 * i) * (i + 1) for i in range(60)]


def test_a_storage_can_grow(any_mode: Timing) -> None:
    x = torch.arange(4, device="sim")
    x.resize_(4000)
    assert x[:4].tolist() == [0, 1, 2, 3]


def test_the_allocator_has_statistics() -> None:
    x = torch.empty(100, device="sim")
    stats = sim.memory_stats()
    assert stats["allocated_bytes.all.current"] == sim.memory_allocated() >= x.nbytes
    torch.accelerator.reset_accumulated_memory_stats()
    assert sim.memory_stats()["allocation.all.allocated"] == 0
