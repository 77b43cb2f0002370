"""Registering and binding implementations: order, reasons, refusals."""

from __future__ import annotations

import torch
from torch import nn

from dougong.contracts import UnsupportedError
from dougong.ops import (
    BindRequest,
    GateUpAct,
    Needs,
    RMSNorm,
    SiluAndMul,
    bind_ops,
    register_kernel,
)
from tests.support.registrations import registry


def model() -> nn.Module:
    norm = RMSNorm(4, 1e-6, torch.float32)
    norm.weight.data.fill_(2.0)
    return nn.ModuleList([norm, SiluAndMul()])


REQUEST = BindRequest(dtype="float32", features=frozenset({"isa.fast"}))


def test_a_function_gets_the_ops_arguments_then_its_weights() -> None:
    @register_kernel("rms_norm", name="acme/rms_norm")
    def kernel(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return x * weight + eps

    built = model()
    report = bind_ops(built, registry(kernel), REQUEST)
    assert report.implementations == {
        "rms_norm": {"acme/rms_norm": 1},
        "silu_and_mul": {"native": 1},
    }
    op = next(iter(built.children()))
    torch.testing.assert_close(op(torch.ones(1, 4)), torch.full((1, 4), 2.0 + 1e-6))


def test_a_class_is_made_once_per_op_and_called_with_the_arguments_alone() -> None:
    made = []

    @register_kernel("silu_and_mul", name="acme/silu")
    class Kernel:
        def __init__(self, op: SiluAndMul) -> None:
            made.append(op)

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    built = model()
    bind_ops(built, registry(Kernel), REQUEST)
    assert len(made) == 1
    assert list(built.children())[1](torch.zeros(1)).item() == 1.0


def test_higher_priority_is_tried_first_and_who_is_passed_over_keeps_a_reason() -> None:
    @register_kernel("rms_norm", name="acme/slow")
    def slow(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return x

    @register_kernel("rms_norm", name="acme/half", when=Needs({"float16"}), priority=3)
    def half(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return x

    @register_kernel("rms_norm", name="acme/amx", when=Needs(features={"mm.x"}), priority=2)
    def amx(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return x

    @register_kernel("rms_norm", name="acme/lib", when=Needs(library="acme-lib"), priority=1)
    def lib(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return x

    request = BindRequest(dtype="float32", missing={"acme-lib": "no compiler"})
    report = bind_ops(model(), registry(slow, half, amx, lib), request)
    assert report.implementations["rms_norm"] == {"acme/slow": 1}
    assert report.passed_over["rms_norm"] == {
        "acme/half": "dtype float32; takes float16",
        "acme/amx": "needs mm.x, which this device does not claim",
        "acme/lib": "needs acme-lib: no compiler",
    }
    assert "passed over: acme/lib (op rms_norm): needs acme-lib: no compiler" in report.notes()


def test_one_reason_for_many_kernels_is_one_sentence() -> None:
    @register_kernel("rms_norm", name="acme/norm", when=Needs(library="acme-lib"))
    def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return x

    @register_kernel("silu_and_mul", name="acme/silu", when=Needs(library="acme-lib"))
    def silu(x: torch.Tensor) -> torch.Tensor:
        return x

    request = BindRequest(dtype="float32", missing={"acme-lib": "no compiler"})
    (note,) = bind_ops(model(), registry(norm, silu), request).notes()
    assert note == (
        "passed over: acme/norm (op rms_norm), acme/silu (op silu_and_mul): "
        "needs acme-lib: no compiler"
    )


def test_a_kernel_that_refuses_when_made_is_passed_over_with_its_reason() -> None:
    @register_kernel("rms_norm", name="acme/picky")
    class Picky:
        def __init__(self, op: RMSNorm) -> None:
            raise UnsupportedError("hidden size 4; takes multiples of 64")

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x

    report = bind_ops(model(), registry(Picky), REQUEST)
    assert report.implementations["rms_norm"] == {"native": 1}
    assert report.passed_over["rms_norm"]["acme/picky"] == "hidden size 4; takes multiples of 64"


def test_the_parts_of_a_fused_slot_are_not_counted_while_the_slot_runs_its_own_kernel() -> None:
    @register_kernel("gate_up_act", name="acme/gate_up_act")
    def fused(x: torch.Tensor, *rest: object) -> torch.Tensor:
        return x

    def built() -> nn.Module:
        return nn.ModuleList([GateUpAct(4, 4, "silu", False, torch.float32)])

    assert bind_ops(built(), registry(fused), REQUEST).implementations == {
        "gate_up_act": {"acme/gate_up_act": 1}
    }
    assert bind_ops(built(), registry(), REQUEST).implementations == {
        "gate_up_act": {"native": 1},
        "silu_and_mul": {"native": 1},
    }
