"""The device calls that the core makes."""

from __future__ import annotations

import pytest
import torch

from dougong_sim.device import control
from dougong_sim.runtime import SimRuntime


def test_questions_open_no_device() -> None:
    runtime = SimRuntime()
    assert runtime.device_count() == 8
    assert runtime.device_name(6) == "Simulated accelerator"
    assert runtime.device_uuid(6) == "SIM-00000006"
    assert runtime.memory_info(6).free_bytes == runtime.memory_info(6).total_bytes
    assert str(runtime.torch_device(6)) == "sim:6"
    assert not control.has_context(6)


def test_memory_in_use_and_its_peak_are_seen(device: torch.device) -> None:
    runtime = SimRuntime()
    runtime.set_device(0)
    free = runtime.memory_info(0).free_bytes
    runtime.reset_peak_memory()
    before = runtime.peak_memory_bytes()
    held = torch.empty(1 << 20, dtype=torch.uint8, device=device)
    assert free - runtime.memory_info(0).free_bytes >= held.nbytes
    del held
    runtime.empty_cache()
    assert runtime.memory_info(0).free_bytes == free
    assert runtime.peak_memory_bytes() - before >= 1 << 20


def test_streams_are_ordered_by_events(device: torch.device) -> None:
    runtime = SimRuntime()
    runtime.set_device(0)
    side, event = runtime.new_stream(), runtime.new_event()
    x = torch.zeros(4, device=device)
    x += 1
    event.record()
    side.wait_event(event)
    with runtime.use_stream(side):
        y = x * 10
    side.synchronize()
    assert y.tolist() == [10] * 4
    assert event.query()


def test_a_copy_into_a_host_buffer_does_not_wait(device: torch.device) -> None:
    runtime = SimRuntime()
    host = runtime.empty_host((4,), torch.int64)
    assert host.is_pinned()
    x = torch.arange(4, device=device)
    with control.forbid_implicit_sync():
        host.copy_(x, non_blocking=True)
    runtime.synchronize()
    assert host.tolist() == [0, 1, 2, 3]


def test_a_seed_gives_the_same_numbers_again(device: torch.device) -> None:
    runtime = SimRuntime()
    drawn = []
    for _ in range(2):
        runtime.seed(7)
        drawn.append(torch.empty(4, device=device).uniform_().tolist())
    assert drawn[0] == drawn[1]


def test_a_late_error_comes_up_at_a_wait(device: torch.device) -> None:
    runtime = SimRuntime()
    runtime.set_device(0)
    control.inject("error", op="add", message="late")
    torch.ones(2, device=device) + 1
    with pytest.raises(torch.AcceleratorError, match="late"):
        runtime.synchronize()
