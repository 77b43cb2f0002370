"""Whoever raises when it is first used is named, however late the error arrives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from dougong.contracts import (
    DeviceLost,
    ImplementationError,
    KernelFault,
    OpPiece,
    OutOfDeviceMemory,
)
from dougong.ops import (
    NATIVE,
    CustomOp,
    GateUpAct,
    RMSNorm,
    SiluAndMul,
    bind_ops,
    register_kernel,
    watch_first_use,
)
from tests.support.registrations import assignments, registry

Tensor = torch.Tensor


class Device:
    """Errors that a call leaves behind surface when somebody waits."""

    def __init__(self) -> None:
        self.pending: list[Exception] = []
        self.num_waits = 0

    def synchronize(self) -> None:
        self.num_waits += 1
        if self.pending:
            raise self.pending.pop()


def bound(kernel: object, **names: str | tuple[OpPiece, ...]) -> nn.ModuleDict:
    model = nn.ModuleDict({"norm": RMSNorm(4, 1e-6, torch.float32), "act": SiluAndMul()})
    bind_ops(model, registry(kernel), assignments(model, names))
    return model


def failing(error: Exception) -> object:
    @register_kernel("rms_norm", name="acme/norm")
    def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        raise error

    return norm


X = torch.zeros(2, 4)


@pytest.mark.parametrize("error", [ValueError("bad grid"), KernelFault("bad grid")])
def test_an_implementation_that_raises_is_named_with_its_op_and_place(error: Exception) -> None:
    model = bound(failing(error), rms_norm="acme/norm")
    with (
        pytest.raises(ImplementationError) as caught,
        watch_first_use(model, synchronize=Device().synchronize),
    ):
        model["norm"](X)
    reason = f"op rms_norm at norm: {type(error).__name__}: bad grid"
    assert caught.value.failures == {"acme/norm": reason}
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    "error", [DeviceLost("gone"), OutOfDeviceMemory("full"), torch.OutOfMemoryError("full")]
)
def test_other_failures_of_the_device_pass(error: Exception) -> None:
    model = bound(failing(error), rms_norm="acme/norm")
    with (
        pytest.raises(type(error)) as caught,
        watch_first_use(model, synchronize=Device().synchronize),
    ):
        model["norm"](X)
    assert caught.value is error


def test_an_error_that_arrives_late_is_laid_at_the_right_door() -> None:
    device = Device()

    @register_kernel("rms_norm", name="acme/norm")
    def late(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        device.pending.append(KernelFault("bad address"))
        return x

    model = bound(late, rms_norm="acme/norm")
    with (
        pytest.raises(ImplementationError, match=r"acme/norm .* bad address"),
        watch_first_use(model, synchronize=device.synchronize),
    ):
        model["norm"](X)


def test_an_error_of_what_ran_before_is_not_the_implementations() -> None:
    device = Device()

    @register_kernel("rms_norm", name="acme/norm")
    def fine(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return x

    model = bound(fine, rms_norm="acme/norm")
    device.pending.append(KernelFault("somebody else's"))
    with (
        pytest.raises(KernelFault, match="somebody else's"),
        watch_first_use(model, synchronize=device.synchronize),
    ):
        model["norm"](X)


def test_a_vendors_exception_is_classified_before_it_is_judged() -> None:
    @contextmanager
    def classified() -> Iterator[None]:
        try:
            yield
        except RuntimeError as exc:
            raise DeviceLost(str(exc)) from exc

    model = bound(failing(RuntimeError("card lost")), rms_norm="acme/norm")
    with (
        pytest.raises(DeviceLost),
        watch_first_use(model, synchronize=Device().synchronize, classified=classified),
    ):
        model["norm"](X)


def test_native_ops_are_not_guarded_and_raise_as_they_are() -> None:
    device = Device()
    model = bound(failing(ValueError()), rms_norm=NATIVE)
    with watch_first_use(model, synchronize=device.synchronize):
        model["norm"](X)
        with pytest.raises(AttributeError):
            model["act"]("no tensor")
    assert device.num_waits == 0


def test_of_several_pieces_the_one_that_ran_is_named_and_native_stays_unguarded() -> None:
    device = Device()
    pieces = (OpPiece("acme/norm", 2), OpPiece(NATIVE))
    model = bound(failing(ValueError("few")), rms_norm=pieces)
    with watch_first_use(model, synchronize=device.synchronize):
        model["norm"](torch.zeros(3, 4))
        assert device.num_waits == 0
        with pytest.raises(ImplementationError, match="acme/norm failed"):
            model["norm"](torch.zeros(2, 4))


def test_a_part_that_fails_inside_an_implementation_keeps_its_own_name() -> None:
    @register_kernel("gate_up_act", name="acme/slot")
    class Slot:
        def __init__(self, op: GateUpAct) -> None:
            self.act = op.act

        def __call__(self, x: Tensor) -> Tensor:
            result: Tensor = self.act(x)
            return result

    @register_kernel("silu_and_mul", name="acme/silu")
    def silu(x: Tensor) -> Tensor:
        raise ValueError("odd")

    model = GateUpAct(4, 4, "silu", False, torch.float32)
    plan = assignments(model, {"gate_up_act": "acme/slot", "silu_and_mul": "acme/silu"})
    bind_ops(model, registry(Slot, silu), plan)
    with (
        pytest.raises(ImplementationError) as caught,
        watch_first_use(model, synchronize=Device().synchronize),
    ):
        model(X)
    assert list(caught.value.failures) == ["acme/silu"]


def test_afterwards_everything_is_as_before_whether_it_failed_or_not() -> None:
    device = Device()
    model = bound(failing(ValueError("unguarded")), rms_norm="acme/norm")
    norm = model["norm"]
    assert isinstance(norm, CustomOp)
    before = norm.kernel
    with (
        pytest.raises(ImplementationError),
        watch_first_use(model, synchronize=device.synchronize),
    ):
        norm(X)
    assert norm.kernel is before
    num_waits = device.num_waits
    with pytest.raises(ValueError, match="unguarded"):
        norm(X)
    assert device.num_waits == num_waits


def test_ops_of_several_modules_are_guarded() -> None:
    @register_kernel("silu_and_mul", name="acme/silu")
    def silu(x: Tensor) -> Tensor:
        raise ValueError("odd")

    sampler = nn.ModuleDict({"act": SiluAndMul()})
    plan = assignments(sampler, {"silu_and_mul": "acme/silu"}, prefix="sampler.")
    bind_ops(sampler, registry(silu), plan, prefix="sampler.")
    with (
        pytest.raises(ImplementationError, match=r"at sampler\.act"),
        watch_first_use(nn.Identity(), sampler, synchronize=Device().synchronize),
    ):
        sampler["act"](X)
