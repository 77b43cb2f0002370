"""The vendor's device code over the double: memory, errors, streams, events, devices, masks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dougong.contracts import DeviceError, KernelFault, OutOfDeviceMemory, UnsupportedError

from dougong_ascend.errors import classify
from dougong_ascend.graph import AscendGraphRunner
from dougong_ascend.platform import AscendPlatform
from dougong_ascend.runtime import AscendRuntime
from tests.doubles import MEMORY_BYTES
from tests.lane.shown import shows

pytestmark = pytest.mark.lane


def _in_child(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip().splitlines()[-1]


def test_the_runtime_of_the_plugin_runs_on_torch_npu(npu: Any) -> None:
    with shows("beside", "AscendRuntime over torch_npu's allocator, streams, events") as said:
        runtime = AscendRuntime()
        runtime.set_device(0)
        free, total = runtime.memory_info(0).free_bytes, runtime.memory_info(0).total_bytes
        assert total == MEMORY_BYTES
        runtime.reset_peak_memory()
        held = torch.empty(64 << 20, dtype=torch.uint8, device=runtime.torch_device(0))
        assert runtime.peak_memory_bytes() >= held.nbytes
        assert runtime.memory_info(0).free_bytes <= free - held.nbytes
        del held
        runtime.empty_cache()
        assert runtime.memory_info(0).free_bytes >= free - (4 << 20)
        host = runtime.empty_host((1000,), torch.float32)
        assert host.is_pinned()
        host.copy_(torch.arange(1000.0))
        stream, event = runtime.new_stream(), runtime.new_event()
        with runtime.use_stream(stream):
            copied = host.to(runtime.torch_device(0), non_blocking=True)
            event.record()
        event.synchronize()
        assert event.query()
        runtime.synchronize()
        assert torch.equal(copied.cpu(), host)
        assert runtime.device_name(0) == "Ascend910B2"
        said.what = (
            "AscendRuntime over torch_npu 2.13.0: allocator, peak, free memory, pinned copies, "
            "streams, events, synchronize"
        )


def test_facts_are_read_through_torch_npu() -> None:
    facts = AscendPlatform().facts(0)
    assert (facts.name, facts.arch) == ("Ascend910B2", "910b")
    assert facts.memory_total_bytes == MEMORY_BYTES


@pytest.mark.parametrize(
    ("soc", "family"),
    [("Ascend910B2", "910b"), ("Ascend910_9391", "a3"), ("Ascend310P3", "310p")],
)
def test_chips_are_told_by_their_numbers(soc: str, family: str) -> None:
    code = (
        "from dougong_ascend.platform import AscendPlatform; print(AscendPlatform().facts(0).arch)"
    )
    assert _in_child(code, ASCEND_DOUBLE_SOC=soc) == family


def test_memory_that_ends_is_classified() -> None:
    with shows("beside", "errors of torch_npu's own code are classified") as said:
        with pytest.raises(torch.OutOfMemoryError) as caught:
            torch.empty(3 * MEMORY_BYTES, dtype=torch.uint8, device="npu")
        fault = classify(caught.value)
        assert fault is not None
        assert fault.kind is OutOfDeviceMemory
        assert fault.device_index == 0
        said.what = (
            "real texts of torch_npu are classified: out of memory, no such device, op failed"
        )
        with pytest.raises(RuntimeError) as wrong:
            torch.get_device_module("npu").set_device(7)
        other = classify(wrong.value)
        assert other is not None
        assert other.kind is DeviceError


def test_an_op_that_the_runtime_refuses_is_a_fault_of_a_kernel() -> None:
    """Without the emulation above the dispatcher: an op as torch_npu has it fails, aloud."""
    code = """
import torch
from dougong_ascend.errors import classify
try:
    (torch.ones(3, device="npu") + 1).cpu()
except RuntimeError as error:
    print(classify(error).kind.__name__)
"""
    assert _in_child(code, ASCEND_DOUBLE_EMULATION="0") in {
        KernelFault.__name__,
        DeviceError.__name__,
    }


def _waits(x: torch.Tensor) -> None:
    x.sum().item()


def _copies(x: torch.Tensor) -> None:
    x.copy_(torch.ones(4))


@pytest.mark.parametrize("fault", [_waits, _copies])
def test_what_no_capture_allows_is_told_by_its_code(
    fault: Callable[[torch.Tensor], None],
) -> None:
    """The runtime's 107030, as torch_npu's own code words it."""
    runner, x = AscendGraphRunner(torch.device("npu", 0)), torch.ones(4, device="npu")
    with pytest.raises(UnsupportedError, match="copies from the host"), runner.capture("a"):
        fault(x)
    with runner.capture("b"):
        doubled = x * 2
    x.fill_(3)
    runner.replay("b")
    assert doubled.cpu().tolist() == [6.0] * 4
    runner.release("b")


@pytest.mark.parametrize(("mask", "count"), [(None, 8), ("1,3", 2), ("0,1,2,5", 4), ("9", 0)])
def test_masks_leave_some_of_eight_devices(mask: str | None, count: int) -> None:
    environment = {"ASCEND_DOUBLE_DEVICES": "8"}
    if mask is not None:
        environment["ASCEND_RT_VISIBLE_DEVICES"] = mask
    code = "import torch; print(torch.npu.device_count())"
    assert _in_child(code, **environment) == str(count)


def test_eight_devices_have_memory_of_their_own() -> None:
    code = """
import torch
from dougong_ascend.runtime import AscendRuntime
runtime = AscendRuntime()
free = []
for index in range(8):
    runtime.set_device(index)
    kept = torch.ones(index + 1, 1 << 20, device=f"npu:{index}")
    moved = kept.to(f"npu:{(index + 1) % 8}")
    assert moved.device.index == (index + 1) % 8 and moved.sum().item() == kept.numel()
    free.append(runtime.memory_info(index).free_bytes)
try:
    torch.ones(2, device="npu:0") + torch.ones(2, device="npu:1")
except RuntimeError as error:
    assert "same device" in str(error)
    print(len(set(free)) > 1)
"""
    assert _in_child(code, ASCEND_DOUBLE_DEVICES="8") == "True"
