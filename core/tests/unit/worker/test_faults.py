from __future__ import annotations

import pytest

from dougong.errors import ConfigError, DeviceLost, KernelFault
from dougong.testing.null_platform import NullDeviceError, NullPlatform
from dougong.worker.faults import classified


def run(error: Exception, step_id: int | None = 7) -> None:
    with classified(NullPlatform(), device_index=2, rank=1, step_id=step_id):
        raise error


def test_a_vendors_error_leaves_classified_with_its_places_and_its_cause() -> None:
    with pytest.raises(KernelFault, match="broke") as caught:
        run(NullDeviceError("broke"))
    fault = caught.value
    assert (fault.device_index, fault.rank, fault.step_id) == (2, 1, 7)
    assert isinstance(fault.__cause__, NullDeviceError)


def test_a_classified_error_gets_the_places_it_lacks() -> None:
    with pytest.raises(DeviceLost) as caught:
        run(DeviceLost("gone", device_index=3))
    fault = caught.value
    assert (fault.device_index, fault.rank, fault.step_id) == (3, 1, 7)
    assert str(fault) == "gone (device=3, rank=1, step=7)"
    assert isinstance(fault.__cause__, DeviceLost)


def test_a_complete_error_passes_as_it_is() -> None:
    error = DeviceLost("gone", device_index=3, rank=0, step_id=5)
    with pytest.raises(DeviceLost) as caught:
        run(error)
    assert caught.value is error


@pytest.mark.parametrize("error", [ValueError("ours"), ConfigError("the user's")])
def test_what_is_no_devices_fault_passes_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        run(error)
    assert caught.value is error
