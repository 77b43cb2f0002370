"""Waits that nobody asked for: counted, warned about, forbidden, permitted by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from dougong_sim.device import control
from dougong_sim.device import torch_module as sim
from tests.device.conftest import Timing

WAITS: dict[str, tuple[str, Callable[[torch.Tensor], object]]] = {
    "item": ("item", lambda x: x.sum().item()),
    "bool": ("item", lambda x: bool(x.sum() > 0)),
    "int": ("item", lambda x: int(x.sum())),
    "tolist": ("d2h_copy", lambda x: x.tolist()),
    "cpu": ("d2h_copy", lambda x: x.cpu()),
    "cpu without blocking": ("d2h_copy", lambda x: torch.empty(4).copy_(x, non_blocking=True)),
    "repr": ("d2h_copy|aten::", lambda x: repr(x)),
    "nonzero": ("aten::nonzero", lambda x: x.nonzero()),
    "mask index": ("aten::", lambda x: x[x > 0]),
    "masked_select": ("aten::masked_select", lambda x: x.masked_select(x > 0)),
    "equal": ("aten::equal|item", lambda x: torch.equal(x, x)),
    "repeat_interleave": (
        "aten::repeat_interleave",
        lambda x: x.repeat_interleave(torch.ones(4, dtype=torch.long, device="sim")),
    ),
    "copy from the host": ("h2d_copy", lambda x: torch.ones(4).to("sim")),
}


@pytest.mark.parametrize(("what", "wait"), WAITS.values(), ids=WAITS)
def test_it_is_forbidden(what: str, wait: Callable[[torch.Tensor], object]) -> None:
    x = torch.ones(4, device="sim")
    with (
        control.forbid_implicit_sync(),
        pytest.raises(RuntimeError, match=f"is forbidden here: ({what})"),
    ):
        wait(x)


@pytest.mark.parametrize(("what", "wait"), WAITS.values(), ids=WAITS)
def test_it_is_counted(what: str, wait: Callable[[torch.Tensor], object]) -> None:
    x = torch.ones(4, device="sim")
    before = control.counters()
    wait(x)
    new = {name for name in control.counters() if name not in before}
    assert any(name.startswith("implicit_sync:") for name in new)


@pytest.mark.parametrize(("what", "wait"), WAITS.values(), ids=WAITS)
def test_it_is_permitted_by_name(what: str, wait: Callable[[torch.Tensor], object]) -> None:
    x = torch.ones(4, device="sim")
    with control.forbid_implicit_sync(), control.allow_sync("sampled tokens"):
        wait(x)
    assert control.counters()["allowed_sync:sampled tokens"] >= 1


def test_waits_by_name_are_always_legal(any_mode: Timing) -> None:
    x = torch.ones(4, device="sim")
    result, done = torch.empty(4, pin_memory=True), sim.Event()
    with control.forbid_implicit_sync():
        result.copy_(x + 1, non_blocking=True)
        done.record()
        done.synchronize()
        sim.current_stream().synchronize()
        sim.synchronize()
    assert result.tolist() == [2, 2, 2, 2]
    counted = control.counters()
    assert [counted[f"sync:{what}"] for what in ("event", "stream", "device")] == [1, 1, 1]


def test_copies_without_blocking_are_no_waits() -> None:
    ordinary, pinned = torch.ones(4), torch.ones(4).pin_memory()
    with control.forbid_implicit_sync():
        ordinary.to("sim", non_blocking=True)
        pinned.to("sim", non_blocking=True)
    assert control.pending() == 2


def test_the_innermost_permission_counts_and_ends() -> None:
    x = torch.ones(1, device="sim")
    with control.forbid_implicit_sync():
        with control.allow_sync("outer"):
            with control.allow_sync("inner"):
                x.item()
            x.item()
        with pytest.raises(RuntimeError, match="forbidden"):
            x.item()
    x.item()
    assert control.counters()["allowed_sync:inner"] == 1
    assert control.counters()["allowed_sync:outer"] == 1
    assert control.counters()["implicit_sync:item"] == 2


def test_permission_is_of_one_thread_and_prohibition_of_all() -> None:
    x = torch.ones(1, device="sim")
    with (
        control.forbid_implicit_sync(),
        control.allow_sync("here"),
        ThreadPoolExecutor(1) as pool,
        pytest.raises(RuntimeError, match="forbidden"),
    ):
        pool.submit(x.item).result()


def test_a_warning_names_the_line() -> None:
    x = torch.ones(1, device="sim")
    control.set_sync_policy("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x.item()
    assert "implicit wait of the host: item" in str(caught[0].message)
    assert caught[0].filename == __file__
