"""What a fake device refuses is planted, one by one; what a real one takes must pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from dougong_conformance.ladder import device_guards, own_process
from dougong_conformance.ladder.fake_device import DeviceRuleBroken, FakeDevice, fake_device

Step = Callable[[torch.Tensor, torch.device], Any]


@pytest.fixture(scope="module", autouse=True)
def custom_op() -> Iterator[None]:
    make_library: Any = torch.library.Library
    library = make_library("fake_device_tests", "DEF")
    library.define("write(Tensor k, Tensor slots, Tensor(a!) cache) -> ()")
    torch.library.register_fake("fake_device_tests::write", lambda k, s, c: None, lib=library)
    yield
    library._destroy()


def write(x: torch.Tensor, slots: torch.Tensor) -> None:
    torch.ops.fake_device_tests.write(x, slots, x)


GOOD: dict[str, Step] = {
    "arithmetic": lambda x, d: x @ x.T + 1,
    "a number on the host": lambda x, d: x * torch.tensor(2.0),
    "an index on the device": lambda x, d: x[torch.zeros(2, dtype=torch.long, device=d)],
    "a copy into an index": lambda x, d: x.index_copy_(
        0, torch.zeros(2, dtype=torch.long, device=d), torch.empty(2, 32, device=d)
    ),
    "a custom op": lambda x, d: write(x, torch.zeros(4, dtype=torch.long, device=d)),
    "a module": lambda x, d: torch.nn.Linear(32, 8, device=d)(x),
    "work on the host": lambda x, d: torch.arange(4)[torch.zeros(2, dtype=torch.long)],
    "a mask, by where": lambda x, d: torch.where(x > 0, x, 0.0),
}

BAD: dict[str, tuple[Step, str]] = {
    "a tensor on the host": (lambda x, d: x + torch.ones(32), "tensor on cpu"),
    "an index on the host": (lambda x, d: x[torch.zeros(2, dtype=torch.long)], "tensor on cpu"),
    "slots on the host": (lambda x, d: write(x, torch.zeros(4, dtype=torch.long)), "on cpu"),
    "a table on the host": (lambda x, d: F.embedding(torch.zeros(2).long(), x), "tensor on cpu"),
    "a value": (lambda x, d: x.sum().item(), "wait"),
    "values": (lambda x, d: x.tolist(), "wait"),
    "a branch": (lambda x, d: 1 if x.sum() else 2, "wait"),
    "a mask": (lambda x, d: x[x > 0], "wait"),
    "a write by a mask": (
        lambda x, d: x.index_put_((x > 0,), torch.ones(3, device=d)),
        "wait",
    ),
    "places": (lambda x, d: x.nonzero(), "wait"),
    "another device": (lambda x, d: x + torch.ones(32, device=f"{d.type}:1"), "tensor on"),
}


def run(step: Step, device_type: str = "cuda", **more: Any) -> FakeDevice:
    with fake_device(device_type, **more) as made:
        x = torch.empty(4, 32, device=made.device)
        made.forget()
        step(x, made.device)
    return made


@pytest.mark.parametrize("grad", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", GOOD)
def test_what_a_device_takes_passes_without_a_copy(name: str, grad: Callable[[], Any]) -> None:
    with grad():
        made = run(GOOD[name])
    assert (made.h2d, made.d2h) == ([], [])


@pytest.mark.parametrize("grad", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", BAD)
def test_what_a_device_refuses_or_waits_for_is_caught(name: str, grad: Callable[[], Any]) -> None:
    step, said = BAD[name]
    with grad(), pytest.raises(DeviceRuleBroken, match=said):
        run(step)


def test_a_host_tensor_that_the_vendor_documents_is_let_pass_and_no_other() -> None:
    allowed = {"fake_device_tests::write"}
    run(BAD["slots on the host"][0], host_arguments=allowed)
    with pytest.raises(DeviceRuleBroken, match="on cpu"):
        run(BAD["an index on the host"][0], host_arguments=allowed)
    with pytest.raises(DeviceRuleBroken, match="on cuda:1"):
        run(
            lambda x, d: write(x, torch.zeros(4, dtype=torch.long, device=f"{d.type}:1")),
            host_arguments=allowed,
        )


@pytest.mark.parametrize("grad", [torch.no_grad, torch.inference_mode])
def test_copies_are_written_down(grad: Callable[[], Any]) -> None:
    def step(x: torch.Tensor, device: torch.device) -> None:
        torch.zeros(4, dtype=torch.int32).to(device, non_blocking=True)
        x.copy_(torch.zeros(4, 32))
        x.argmax(-1).to("cpu")
        x.to(torch.float16)

    with grad():
        made = run(step)
    assert [(one.shape, one.dtype, one.non_blocking) for one in made.h2d] == [
        ((4,), torch.int32, True),
        ((4, 32), torch.float32, False),
    ]
    assert [(one.shape, one.dtype) for one in made.d2h] == [((4,), torch.int64)]


def test_every_device_that_torch_knows_is_faked_here() -> None:
    for device_type in ("cuda", "xpu"):
        assert "aten::mm" in run(GOOD["arithmetic"], device_type).ops


def test_without_a_compiler_it_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(RuntimeError, match=r"install g\+\+ or set CXX"):
        device_guards._library("XPU")


def _on_unknown_device() -> tuple[str, ...]:
    made = run(GOOD["an index on the device"], "npu")
    try:
        run(BAD["an index on the host"][0], "npu")
    except DeviceRuleBroken:
        return tuple(made.ops)
    return ()


def _on_two_unknown_devices() -> str:
    run(GOOD["arithmetic"], "npu")
    try:
        run(GOOD["arithmetic"], "other")
    except RuntimeError as error:
        return str(error)
    return ""


def both() -> tuple[tuple[str, ...], str]:
    return _on_unknown_device(), _on_two_unknown_devices()


def test_one_device_that_torch_does_not_know_is_faked_in_a_process_of_its_own() -> None:
    ops, second = own_process.call(both)
    assert "aten::index" in ops
    assert "use a process of its own" in second
