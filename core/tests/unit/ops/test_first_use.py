"""Whoever raises when it is first used is named, however late the error arrives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    FusedAddRMSNorm,
    GateUpAct,
    RMSNorm,
    SiluAndMul,
    register_kernel,
)
from dougong.ops.argument_copies import ArgumentCopies
from dougong.ops.binding import bind_ops
from dougong.ops.first_use import watch_first_use
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
    with (
        pytest.raises(ImplementationError, match="acme/norm failed"),
        watch_first_use(model, synchronize=device.synchronize),
    ):
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


class Several(nn.Module):
    """Norms of two sizes, an activation, and a slot whose kernel may write."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([RMSNorm(4, 1e-6, torch.float32) for _ in range(2)])
        self.act = SiluAndMul()
        self.add_norm = FusedAddRMSNorm(2, 1e-6, torch.float32)
        for parameter in self.parameters():
            parameter.data.fill_(1.0)

    def __call__(self, x: Tensor) -> Tensor:
        for norm in self.norms:
            x = norm(x)
        x, _ = self.add_norm(self.act(x), torch.ones(len(x), 2))
        return x


def used(
    *kernels: object, device: Device | None = None, x: Tensor | None = None, **names: str
) -> tuple[Several, Tensor]:
    """The model and what comes out of its first step."""
    device = device or Device()
    model = Several()
    found = registry(*kernels)
    with found.overriding(assignments(model, names)):
        model = Several()
    bind_ops(model, found, assignments(model, names))
    with watch_first_use(model, synchronize=device.synchronize):
        result = model(torch.ones(3, 4) if x is None else x)
    return model, result


def test_all_that_fail_are_named_at_the_end_and_native_goes_on_with_what_they_were_given() -> None:
    calls: list[str] = []

    @register_kernel("rms_norm", name="acme/spoils", mutates=())
    def spoils(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        calls.append("norm")
        x.fill_(torch.nan)
        raise ValueError("after it wrote")

    @register_kernel("fused_add_rms_norm", name="acme/add", mutates=("x", "residual"))
    def add(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        calls.append("add")
        raise TypeError("odd")

    results: list[Tensor] = []

    @register_kernel("silu_and_mul", name="acme/silu")
    def silu(x: Tensor) -> Tensor:
        results.append(x.clone())
        return x[..., :2] * 2

    with pytest.raises(ImplementationError) as caught:
        used(
            spoils,
            add,
            silu,
            rms_norm="acme/spoils",
            fused_add_rms_norm="acme/add",
            silu_and_mul="acme/silu",
        )
    assert caught.value.failures == {
        "acme/spoils": "op rms_norm at norms.0: ValueError: after it wrote",
        "acme/add": "op fused_add_rms_norm at add_norm: TypeError: odd",
    }
    assert calls == ["norm", "add"], "what failed once is not called again"
    torch.testing.assert_close(results[0], torch.ones(3, 4))


def test_after_a_fault_of_the_device_nothing_goes_on() -> None:
    @register_kernel("rms_norm", name="acme/odd")
    def odd(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        raise ValueError("odd")

    @register_kernel("silu_and_mul", name="acme/faulty")
    def faulty(x: Tensor) -> Tensor:
        raise KernelFault("bad address")

    @register_kernel("fused_add_rms_norm", name="acme/never")
    def never(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        raise AssertionError("the device is in no state to be used")

    with pytest.raises(ImplementationError) as caught:
        used(
            odd,
            faulty,
            never,
            rms_norm="acme/odd",
            fused_add_rms_norm="acme/never",
            silu_and_mul="acme/faulty",
        )
    assert list(caught.value.failures) == ["acme/odd", "acme/faulty"]


def test_without_the_ops_weights_nothing_goes_on() -> None:
    @register_kernel("rms_norm", name="acme/packed")
    class Packed:
        def __init__(self, op: RMSNorm) -> None:
            op.weight.data = op.weight.new_empty(0)

        def __call__(self, x: Tensor) -> Tensor:
            raise ValueError("odd")

    @register_kernel("silu_and_mul", name="acme/never")
    def never(x: Tensor) -> Tensor:
        raise AssertionError

    with pytest.raises(ImplementationError) as caught:
        used(Packed, never, rms_norm="acme/packed", silu_and_mul="acme/never")
    assert list(caught.value.failures) == ["acme/packed"]


@register_kernel("rms_norm", name="acme/writes")
def writes(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    x[0, 0] = 7
    return x


@register_kernel("fused_add_rms_norm", name="acme/half", mutates=("residual",))
def half(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    residual += x
    x.zero_()
    return x, residual


def test_writes_that_are_not_declared_are_failures() -> None:
    with pytest.raises(ImplementationError) as caught:
        used(writes, half, rms_norm="acme/writes", fused_add_rms_norm="acme/half")
    assert caught.value.failures == {
        "acme/writes": "op rms_norm at norms.0: it wrote to x; rms_norm allows no argument to be "
        "overwritten",
        "acme/half": "op fused_add_rms_norm at add_norm: it wrote to x; it declares residual "
        "(mutates)",
    }


def test_a_class_may_write_what_its_op_allows_and_nothing_else() -> None:
    @CustomOp.register_oot("fused_add_rms_norm", name="acme/in_place")
    class InPlace(FusedAddRMSNorm):
        def forward_oot(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
            residual += x
            return x.zero_(), residual

    used(InPlace, fused_add_rms_norm="acme/in_place")

    @CustomOp.register_oot("silu_and_mul", name="acme/act")
    class Act(SiluAndMul):
        def forward_oot(self, x: Tensor) -> Tensor:
            return x.zero_()[..., :2]

    with pytest.raises(ImplementationError, match="at act: it wrote to x"):
        used(Act, silu_and_mul="acme/act")


def test_nan_that_stays_where_it_is_was_not_written() -> None:
    @register_kernel("rms_norm", name="acme/reads")
    def reads(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return x + 1

    used(reads, x=torch.full((3, 4), torch.nan), rms_norm="acme/reads")


def test_ops_alike_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[Sequence[str]] = []

    class Counted(ArgumentCopies):
        def __init__(self, names: Sequence[str], args: Sequence[object]) -> None:
            copied.append(names)
            super().__init__(names, args)

    monkeypatch.setattr("dougong.ops.first_use.ArgumentCopies", Counted)

    @register_kernel("rms_norm", name="acme/reads")
    def reads(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return x + 1

    used(reads, rms_norm="acme/reads")
    assert copied == [("x",), ("x",)]  # of three norms; the one in the slot is smaller


def test_what_goes_wrong_after_a_failure_is_told_with_it_and_a_lost_device_passes() -> None:
    model = bound(failing(ValueError("odd")), rms_norm="acme/norm")

    def fail_twice(error: Exception) -> None:
        with watch_first_use(model, synchronize=Device().synchronize):
            model["norm"](X)
            raise error

    with pytest.raises(ImplementationError) as caught:
        fail_twice(ImplementationError({"acme/attention": "odd, too"}))
    assert list(caught.value.failures) == ["acme/norm", "acme/attention"]
    with pytest.raises(ImplementationError) as caught:
        fail_twice(ValueError("native could not go on"))
    assert list(caught.value.failures) == ["acme/norm"]
    with pytest.raises(DeviceLost):
        fail_twice(DeviceLost("gone"))
