"""Device calls over a pretended ``torch.xpu``: what is asked of whom, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from dougong.contracts import DeviceError, DeviceInfo
from dougong_conformance.ladder.stand_in import define

from dougong_xpu import driver, platform, runtime
from dougong_xpu.platform import XpuPlatform
from dougong_xpu.runtime import XpuRuntime
from tests.plugin.fake_torch_xpu import FakeTorchXpu, Properties
from tests.references import golden

INFO = DeviceInfo(
    index=0, name="Intel Arc B-Series", uuid="0000:03:00.0", arch="bmg", driver_version="1.6.33578"
)
GIB = 1 << 30


@pytest.fixture
def xpu(monkeypatch: pytest.MonkeyPatch) -> FakeTorchXpu:
    """In the place of torch's module; the kernel lists one device."""
    made = FakeTorchXpu()
    monkeypatch.setattr(XpuRuntime, "module", made)
    monkeypatch.setattr(platform, "_properties", made.get_device_properties)
    for module in (driver, runtime):
        monkeypatch.setattr(module, "list_devices", lambda: (INFO,))
    return made


def test_counting_and_naming_start_nothing(xpu: FakeTorchXpu) -> None:
    made = XpuRuntime()
    assert made.device_count() == 1
    assert made.device_name(0) == "Intel Arc B-Series"
    assert made.device_uuid(0) == "0000:03:00.0"
    assert made.torch_device(0) == torch.device("xpu", 0)
    assert xpu.asked == []
    with pytest.raises(DeviceError, match="1 devices here; index 3"):
        made.device_uuid(3)


def test_setting_a_device_compares_both_lists_first(xpu: FakeTorchXpu) -> None:
    made = XpuRuntime()
    made.set_device(0)
    assert xpu.asked == ["device_count", "get_device_properties", "set_device"]
    assert made.current_device() == 0


def test_another_count_is_refused(xpu: FakeTorchXpu) -> None:
    xpu.devices.append(Properties())
    with pytest.raises(DeviceError, match=r"lists 1 devices here and torch\.xpu 2"):
        XpuRuntime().set_device(0)
    assert "set_device" not in xpu.asked


def test_an_index_that_nobody_has_is_refused(xpu: FakeTorchXpu) -> None:
    with pytest.raises(DeviceError, match="1 devices here; index 3"):
        XpuRuntime().set_device(3)
    assert "set_device" not in xpu.asked


def test_another_family_at_an_index_is_refused(xpu: FakeTorchXpu) -> None:
    xpu.devices[0] = Properties(name="Intel(R) Arc(TM) A770 Graphics", device_id=0x56A0)
    with pytest.raises(DeviceError, match=r"should be of family bmg.*A770"):
        XpuRuntime().set_device(0)


def test_a_torch_that_does_not_tell_the_pci_id_is_believed(xpu: FakeTorchXpu) -> None:
    xpu.devices[0].device_id = None  # type: ignore[assignment]  # as older versions
    XpuRuntime().set_device(0)
    assert "set_device" in xpu.asked


@pytest.mark.parametrize(
    ("told", "expected"),
    [((4 * GIB, 12 * GIB), 4 * GIB), ((-1, -1), 5), ((0, 12 * GIB), 5), ((13, 12), 5)],
)
def test_memory_is_asked_of_the_library_and_else_of_torch(
    xpu: FakeTorchXpu, told: tuple[int, int], expected: int
) -> None:
    answer: Callable[[int], tuple[int, int]] = lambda device_index: told  # noqa: E731
    with define(golden(), {"_C_cache_ops::getMemoryInfo": answer}):
        assert XpuRuntime().memory_info(0).free_bytes == expected
    assert ("mem_get_info" in xpu.asked) == (expected == 5)


def test_memory_that_nobody_tells_is_an_error_with_a_way_out(xpu: FakeTorchXpu) -> None:
    xpu.memory = None
    with pytest.raises(DeviceError, match="--num-kv-blocks"):
        XpuRuntime().memory_info(0)


def test_nothing_of_torch_is_replaced(xpu: FakeTorchXpu) -> None:
    before = torch.accelerator.__dict__.copy()
    XpuRuntime().memory_info(0)
    assert torch.accelerator.__dict__ == before


def test_no_gradients_and_no_inference_mode(xpu: FakeTorchXpu) -> None:
    with XpuRuntime().inference_mode():
        assert not torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()


def test_facts_are_what_torch_measures(xpu: FakeTorchXpu) -> None:
    made = XpuPlatform()
    assert made.facts_open_context, "the core asks in a child"
    facts = made.facts(0)
    assert facts.arch == "bmg"
    assert facts.name == "Intel(R) Arc(TM) B580 Graphics"
    assert (facts.memory_free_bytes, facts.memory_total_bytes) == (5, 7)
    assert facts.driver_version == "1.6.33578+11"
    assert facts.num_compute_units == 160
