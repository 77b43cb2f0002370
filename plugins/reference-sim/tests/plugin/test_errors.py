"""Real errors of the device, and what the core is told that they are."""

from __future__ import annotations

import pytest
import torch
from dougong.contracts import (
    CommunicatorTimeout,
    DeviceError,
    DeviceLost,
    Fault,
    KernelFault,
    OutOfDeviceMemory,
    PeerLost,
)

from dougong_sim.device import control
from dougong_sim.device import torch_module as sim
from dougong_sim.platform import SimPlatform


def classified(exc: BaseException) -> Fault:
    fault = SimPlatform().classify_error(exc)
    assert fault is not None, exc
    return fault


def caught_at_a_wait(device: torch.device) -> Exception:
    torch.ones(4, device=device).add_(1)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which kind is what the test asks
        torch.accelerator.synchronize(device)
    return caught.value


def test_memory_that_runs_out(device: torch.device) -> None:
    control.set_memory_limit(1 << 20)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(1 << 22, device=device)
    fault = classified(caught.value)
    assert fault.kind is OutOfDeviceMemory
    assert fault.device_index == 0


def test_a_lost_device(device: torch.device) -> None:
    control.inject("lost", op="add")
    fault = classified(caught_at_a_wait(device))
    assert (fault.kind, fault.device_index) == (DeviceLost, 0)


def test_a_kernel_that_failed_earlier(device: torch.device) -> None:
    control.inject("error", op="add", message="illegal address")
    fault = classified(caught_at_a_wait(device))
    assert fault.kind is KernelFault
    assert "illegal address" in fault.message
    assert "\n" not in fault.message


def test_the_device_that_failed_is_named_and_not_the_current_one() -> None:
    control.inject("error", device=3, op="add")
    fault = classified(caught_at_a_wait(torch.device("sim", 3)))
    assert (fault.kind, fault.device_index) == (KernelFault, 3)


def test_a_device_that_is_not_there_is_an_error_of_a_device() -> None:
    with pytest.raises(torch.AcceleratorError) as caught:
        sim.set_device(99)
    assert classified(caught.value).kind is DeviceError


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("simccl: timed out: allreduce took 5 s", CommunicatorTimeout),
        ("simccl: peer lost: Connection closed by peer", PeerLost),
        ("sim:1: asynchronous error: simccl: peer lost: rank 2", PeerLost),
    ],
)
def test_collectives_that_fail_by_the_words_of_their_library(
    text: str, kind: type[DeviceError]
) -> None:
    for raised in (RuntimeError(text), torch.AcceleratorError(text)):
        assert classified(raised).kind is kind


@pytest.mark.parametrize("exc", [ValueError("no"), RuntimeError("shapes differ"), OSError("disk")])
def test_what_is_no_fault_of_the_device_is_left_alone(exc: Exception) -> None:
    assert SimPlatform().classify_error(exc) is None


def test_an_operator_that_the_device_lacks_is_no_fault_of_it(device: torch.device) -> None:
    with pytest.raises(NotImplementedError) as caught:
        torch.special.erfcx(torch.ones(2, device=device))
    assert SimPlatform().classify_error(caught.value) is None
