from __future__ import annotations

from pathlib import Path

import pytest
import torch
from dougong.contracts import ConfigError, DeviceError, MemoryInfo

from dougong_rocm.runtime import RocmRuntime
from tests.plugin.hip_module import FakeHip
from tests.plugin.machine import GIB, build


@pytest.fixture
def hip(monkeypatch: pytest.MonkeyPatch) -> FakeHip:
    module = FakeHip(("gfx942", "gfx90a"))
    monkeypatch.setattr(torch.version, "hip", "6.4.43482")
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    return module


@pytest.fixture
def runtime(hip: FakeHip, tmp_path: Path) -> RocmRuntime:
    return RocmRuntime(build(tmp_path))


def test_queries_before_a_device_is_set_open_nothing(runtime: RocmRuntime, hip: FakeHip) -> None:
    assert runtime.device_count() == 2
    assert runtime.device_name(0) == "AMD Instinct MI300 series"
    assert runtime.device_uuid(1) == "GPU-000000000000000b"
    assert runtime.memory_info(0) == MemoryInfo(63 * GIB, 64 * GIB)
    assert str(runtime.torch_device(1)) == "cuda:1"
    assert hip.told == []


def test_an_open_device_is_asked_itself(runtime: RocmRuntime, hip: FakeHip) -> None:
    runtime.set_device(1)
    assert runtime.current_device() == 1
    assert runtime.device_name(1) == "AMD Instinct MI300X"
    assert runtime.memory_info(1) == MemoryInfo(5, 7)
    assert hip.told[:2] == [("set_device", 1), ("get_device_properties", 1)]


def test_another_order_than_the_drivers_is_refused(
    tmp_path: Path, hip: FakeHip, monkeypatch: pytest.MonkeyPatch
) -> None:
    hip.archs = ("gfx90a", "gfx942")
    with pytest.raises(DeviceError, match=r"device 0 is a gfx90a.*ROCR_VISIBLE_DEVICES"):
        RocmRuntime(build(tmp_path)).set_device(0)


def test_a_device_that_is_not_here_is_refused(runtime: RocmRuntime) -> None:
    with pytest.raises(DeviceError, match="index 2"):
        runtime.set_device(2)


@pytest.mark.parametrize(
    ("cuda", "told"), [("12.8", "built for CUDA 12.8"), (None, "built without a device")]
)
def test_a_torch_of_another_vendor_is_refused(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, told: str
) -> None:
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    with pytest.raises(ConfigError, match=told):
        RocmRuntime()
