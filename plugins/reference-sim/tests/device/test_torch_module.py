"""`torch.sim` and `torch.accelerator`: what the core's runtime, and everybody else, calls."""

from __future__ import annotations

import pytest
import torch
from dougong.reference import TorchDeviceRuntime

from dougong_sim.device import control
from dougong_sim.device import torch_module as sim


def test_torch_knows_the_device() -> None:
    assert torch.get_device_module("sim") is sim
    assert torch.accelerator.current_accelerator() == torch.device("sim")
    assert sim.is_available()
    assert sim.device_count() == torch.accelerator.device_count() == 8


def test_devices_are_told_apart() -> None:
    properties = [sim.get_device_properties(index) for index in range(8)]
    assert len({p.uuid for p in properties}) == 8
    assert properties[3].total_memory == control.memory_limit(3)
    assert sim.get_device_name(3) == "Simulated accelerator"


def test_the_current_device_is_where_tensors_go() -> None:
    with sim.device(2):
        assert torch.empty(1, device="sim").device.index == 2
    sim.set_device("sim:1")
    assert sim.current_device() == torch.accelerator.current_device_index() == 1
    assert torch.empty(1, device="sim").device.index == 1


def test_questions_make_no_context() -> None:
    for index in range(5, 8):
        sim.get_device_properties(index)
        sim.mem_get_info(index)
        sim.manual_seed_all(1)
        sim.memory_allocated(index)
        sim.reset_peak_memory_stats(index)
        assert not control.has_context(index)
    torch.empty(1, device="sim:5")
    assert control.has_context(5)
    assert sim.is_initialized()


def test_the_cores_runtime_works_on_it() -> None:
    runtime = TorchDeviceRuntime("sim")
    runtime.set_device(1)
    assert runtime.device_count() == 8
    assert runtime.device_name(1) == "Simulated accelerator"
    assert runtime.device_uuid(1) == "SIM-00000001"
    assert runtime.torch_device(1) == torch.device("sim:1")
    assert runtime.memory_info(1).total_bytes == control.memory_limit(1)
    runtime.reset_peak_memory()
    before = runtime.peak_memory_bytes()
    x = torch.empty(1000, device="sim")
    assert runtime.peak_memory_bytes() - before == 4096
    stream, event = runtime.new_stream(), runtime.new_event()
    with runtime.use_stream(stream):
        y = x.fill_(2) * 3
        host = runtime.empty_host((1000,), torch.float32)
        host.copy_(y, non_blocking=True)
        event.record()
    event.synchronize()
    assert host.is_pinned()
    assert host[0].item() == 6
    runtime.seed(3)
    runtime.empty_cache()
    runtime.synchronize()


def test_streams_and_events_are_torchs_own() -> None:
    side, event = sim.Stream(1), sim.Event(enable_timing=True)
    assert isinstance(side, torch.Stream)
    assert isinstance(event, torch.Event)
    assert side.device == torch.device("sim:1")
    with sim.stream(side):
        assert sim.current_stream(1) == side
    with sim.stream(None):
        assert sim.current_stream(1) == sim.default_stream(1)


def test_device_memory_is_not_host_memory() -> None:
    with pytest.raises((TypeError, RuntimeError)):
        torch.ones(4, device="sim").numpy()


def test_tensors_are_saved_and_loaded(tmp_path: object) -> None:
    import io

    file = io.BytesIO()
    torch.save({"x": torch.arange(4, device="sim:1")}, file)
    file.seek(0)
    assert torch.load(file)["x"].device == torch.device("sim:1")
    file.seek(0)
    assert torch.load(file, map_location="cpu")["x"].tolist() == [0, 1, 2, 3]
