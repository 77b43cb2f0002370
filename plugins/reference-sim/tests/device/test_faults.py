"""Faults on demand: they come up late, by torch's own exceptions, and as often as was asked."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from dougong_sim.device import control
from dougong_sim.device import torch_module as sim
from tests.device.conftest import Timing


def _wait_for_event() -> None:
    event = sim.Event()
    event.record()
    event.synchronize()


WAITS: dict[str, Callable[[], object]] = {
    "device": sim.synchronize,
    "stream": lambda: sim.current_stream().synchronize(),
    "event": _wait_for_event,
    "item": lambda: torch.ones(1, device="sim").sum().item(),
    "copy to the host": lambda: torch.ones(1, device="sim").cpu(),
    "copy from the host": lambda: torch.ones(1).to("sim"),
    "nonzero": lambda: torch.ones(1, device="sim").nonzero(),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_an_error_comes_up_at_the_next_wait(any_mode: Timing, wait: Callable[[], object]) -> None:
    x = torch.ones(4, 4, device="sim")
    control.inject("error", op="mm", after=2, message="ECC", is_sticky=False)
    for _ in range(4):
        x = x @ x  # returns, although the third one fails
    with pytest.raises(torch.AcceleratorError, match=r"sim:0: .*ECC \[in aten::mm\]"):
        wait()
    wait()  # reported once


def test_a_sticky_error_stays_until_the_device_is_reset(any_mode: Timing) -> None:
    x = torch.ones(4, device="sim")
    sim.synchronize()
    control.inject("error", message="ECC")
    y = x + 1
    for _ in range(2):
        with pytest.raises(torch.AcceleratorError, match="ECC"):
            sim.synchronize()
    with pytest.raises(torch.AcceleratorError, match="sticky"):
        y + 1  # not even a launch
    with pytest.raises(torch.AcceleratorError, match="ECC"):
        torch.empty(4, device="sim")
    torch.ones(4, device="sim:1").sum().item()
    control.reset()
    assert (x + 1).tolist() == [2, 2, 2, 2]


def test_nothing_runs_after_an_error(any_mode: Timing) -> None:
    x = torch.ones(4, device="sim")
    control.inject("error", op="neg", is_sticky=False)
    y = -x
    z = x + 1
    with pytest.raises(torch.AcceleratorError):
        sim.synchronize()
    assert control.host_view(y).isnan().all()
    assert control.host_view(z).isnan().all()


def test_a_bad_index_in_device_memory_is_found_late(any_mode: Timing) -> None:
    rows = torch.tensor([3, 99]).to("sim")
    picked = functional.embedding(rows, torch.ones(4, 4, device="sim"))
    with pytest.raises(torch.AcceleratorError, match=r"failure in aten::index_select: .*range"):
        (picked * 2).cpu()


def test_wrong_shapes_are_found_at_the_call(any_mode: Timing) -> None:
    x = torch.ones(4, 4, device="sim")
    with control.forbid_implicit_sync():
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            x @ torch.ones(3, 3, device="sim")
        with pytest.raises(RuntimeError, match="must match the size"):
            x + torch.ones(3, 3, device="sim")
        with pytest.raises((RuntimeError, IndexError)):
            x.index_select(5, torch.ones(1, dtype=torch.long, device="sim"))


def test_a_lost_device_answers_nothing_more(any_mode: Timing) -> None:
    x = torch.ones(4, device="sim")
    control.lose()
    for call in (lambda: x + 1, x.cpu, sim.synchronize, lambda: torch.empty(2, device="sim")):
        with pytest.raises(torch.AcceleratorError, match="sim:0: device lost"):
            call()
    assert torch.ones(2, device="sim:1").tolist() == [1, 1]


def test_a_device_can_be_lost_in_the_middle_of_its_work(any_mode: Timing) -> None:
    x = torch.ones(4, device="sim")
    control.inject("lost", after=2)
    try:
        for _ in range(4):
            x = x + 1  # in eager mode a later launch knows already
    except torch.AcceleratorError as error:
        assert "device lost" in str(error)  # noqa: PT017  # it may come here or below
    with pytest.raises(torch.AcceleratorError, match="device lost"):
        sim.synchronize()


def _soon(call: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(0.05, call)
    timer.start()
    return timer


def test_a_hang_ends_when_it_is_lifted(any_mode: Timing) -> None:
    x = torch.ones(4, device="sim")
    sim.synchronize()
    control.inject("hang")
    timer = _soon(lambda: control.unhang())
    y = x + 1
    sim.synchronize()  # in eager mode the call before waited already
    assert not timer.is_alive() or timer.finished.is_set()
    assert y.tolist() == [2, 2, 2, 2]


def test_a_watchdog_ends_a_hang_by_giving_the_device_up(any_mode: Timing) -> None:
    x = torch.ones(4, device="sim")
    sim.synchronize()
    control.inject("hang")
    timer = _soon(lambda: control.lose())
    x + 1
    with pytest.raises(torch.AcceleratorError, match="device lost"):
        sim.synchronize()
    timer.join()


def test_a_slow_kernel_takes_its_time_and_is_right(any_mode: Timing) -> None:
    begin, end = sim.Event(), sim.Event()
    x = torch.ones(4, device="sim")
    control.inject("slow", op="add", milliseconds=10, times=3)
    begin.record()
    for _ in range(4):
        x = x + 1
    end.record()
    assert x.tolist() == [5, 5, 5, 5]
    assert begin.elapsed_time(end) >= 30


@pytest.mark.parametrize(
    ("dtype", "bit", "expected"),
    [(torch.int32, 30, 3 + (1 << 30)), (torch.int32, 0, 2), (torch.uint8, 7, 131)],
    ids=["high", "low", "byte"],
)
def test_a_corrupt_kernel_changes_one_bit(
    any_mode: Timing, dtype: torch.dtype, bit: int, expected: int
) -> None:
    x = torch.ones(4, dtype=dtype, device="sim")
    control.inject("corrupt", op="add", bit=bit)
    y = x + 2
    assert y.tolist() == [expected, 3, 3, 3]
    assert (x + 2).tolist() == [3, 3, 3, 3]


def test_a_corrupt_kernel_that_writes_in_place(any_mode: Timing) -> None:
    x = torch.zeros(4, dtype=torch.int32, device="sim")
    rows = torch.tensor([1]).to("sim")
    control.inject("corrupt", op="index_copy", bit=0)
    x.index_copy_(0, rows, torch.ones(1, dtype=torch.int32, device="sim"))
    assert x.tolist() == [1, 1, 0, 0]


def test_a_fault_may_strike_always() -> None:
    control.inject("corrupt", op="add", bit=0, times=0)
    x = torch.zeros(1, dtype=torch.int32, device="sim")
    assert [(x + 2).item() for _ in range(3)] == [3, 3, 3]


def test_faults_strike_replayed_kernels_too() -> None:
    x = torch.zeros(4, device="sim")
    graph = torch.accelerator.Graph()
    with graph:
        y = x + 1
    control.inject("error", op="add", after=1, is_sticky=False)
    graph.replay()
    sim.synchronize()
    assert y.tolist() == [1, 1, 1, 1]
    graph.replay()
    with pytest.raises(torch.AcceleratorError, match="injected"):
        sim.synchronize()


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="'earthquake' is none of"):
        control.inject("earthquake")  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("index", [8, 99])
def test_an_index_that_is_not_there_is_refused(index: int) -> None:
    for call in (
        lambda: torch.empty(2, device=f"sim:{index}"),
        lambda: sim.set_device(index),
        lambda: torch.ones(2).to(f"sim:{index}"),
        lambda: sim.get_device_properties(index),
        lambda: sim.synchronize(index),
    ):
        with pytest.raises(torch.AcceleratorError, match=f"invalid device ordinal {index}; 8"):
            call()


def test_tensors_of_two_devices_do_not_mix(any_mode: Timing) -> None:
    x, y = torch.ones(4, device="sim:0"), torch.ones(4, device="sim:1")
    with pytest.raises(RuntimeError, match="at least two devices, sim:0 and sim:1"):
        x + y  # torch's own check
    with pytest.raises(RuntimeError, match=r"sim:0 and sim:1\) in aten::mm \(arg.*'mat2'"):
        x[None] @ y[:, None]
