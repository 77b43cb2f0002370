"""Every rule for what is registered, with a violation planted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from dougong.ops import CustomOp, FusedAddRMSNorm, Linear, Needs, RMSNorm, RotaryEmbedding
from dougong.ops.judging import (
    class_problems,
    has_own_forward_oot,
    kernel_problems,
    key_problems,
    op_problems,
)
from dougong.ops.marks import KernelTerms

Tensor = torch.Tensor


def of_kernel(target: Any, op: type[CustomOp] = RMSNorm, **terms: Any) -> list[str]:
    return list(kernel_problems(target, KernelTerms(**terms), op))


def good(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x


class Prepared:
    def __init__(self, op: RMSNorm) -> None: ...

    def __call__(self, x: Tensor) -> Tensor:
        return x


def test_what_fits_has_no_problem() -> None:
    def other_names(hidden: Tensor, w: Tensor, e: float, block: int = 64) -> Tensor:
        return hidden

    assert of_kernel(good, when=Needs(hidden_size=64)) == []
    assert of_kernel(other_names) == []
    assert of_kernel(lambda *args: args[0]) == []
    assert of_kernel(Prepared) == []
    assert of_kernel(Prepared, mutates=("x",), op=FusedAddRMSNorm)  # __call__ lacks the residual


def too_few(x: Tensor, weight: Tensor) -> Tensor:
    return x


def too_many(x: Tensor, weight: Tensor, eps: float, bias: Tensor) -> Tensor:
    return x


def swapped(x: Tensor, eps: float, weight: Tensor) -> Tensor:
    return x


def by_keyword(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    return x


class WithoutCall:
    def __init__(self, op: RMSNorm) -> None: ...


class WantsMore(Prepared):
    def __init__(self, op: RMSNorm, block: int) -> None: ...


class WrongCall(Prepared):
    def __call__(self, x: Tensor, weight: Tensor) -> Tensor:  # type: ignore[override]  # planted
        return x


async def later(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x


class CalledLater(Prepared):
    async def __call__(self, x: Tensor) -> Tensor:  # type: ignore[override]  # planted
        return x


def piecemeal(x: Tensor, weight: Tensor, eps: float) -> Iterator[Tensor]:
    yield x


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (too_few, "(x, weight) and is called with (x, weight, eps): too many positional"),
        (too_many, "missing a required argument: 'bias'"),
        (swapped, "eps stands where weight is passed"),
        (by_keyword, "(x, weight, eps): too many positional"),
        (WithoutCall, "its objects cannot be called; define __call__"),
        (WantsMore, "__init__: it takes (op, block) and is called with (op)"),
        (WrongCall, "__call__: it takes (x, weight) and is called with (x)"),
        (RMSNorm, "it is an op class; register it with CustomOp.register_oot"),
        (later, "it is a coroutine function (async def)"),
        (CalledLater, "__call__: it is a coroutine function (async def)"),
        (piecemeal, "it is a generator function (it yields)"),
    ],
)
def test_a_kernel_that_would_be_called_wrongly_is_refused(target: Any, told: str) -> None:
    (problem,) = of_kernel(target)
    assert told in problem


def test_a_condition_on_what_the_op_does_not_state_is_refused() -> None:
    (problem,) = of_kernel(good, when=Needs(hiden_size=64))
    assert problem == (
        "its condition asks for hiden_size, which rms_norm does not state; "
        "did you mean 'hidden_size'? stated: hidden_size, weight_format"
    )


def test_only_arguments_that_the_op_allows_are_overwritten() -> None:
    (problem,) = of_kernel(good, mutates=("x",))
    assert "it overwrites x; rms_norm allows no argument to be overwritten" in problem

    def rotate(positions: Tensor, q: Tensor, k: Tensor, *rest: object) -> tuple[Tensor, Tensor]:
        return q, k

    assert of_kernel(rotate, RotaryEmbedding, mutates=("q", "k")) == []
    (problem,) = of_kernel(rotate, RotaryEmbedding, mutates=("q", "positions"))
    assert "it overwrites positions; rotary_embedding allows q, k to be overwritten" in problem


def test_every_problem_of_a_kernel_is_told() -> None:
    assert len(of_kernel(too_few, when=Needs(heads=1), mutates=("x",))) == 3


def test_an_unknown_key_is_told_with_the_nearest() -> None:
    assert list(key_problems("linear", ["linear"])) == []
    (problem,) = key_problems("lineer", ["linear", "rms_norm"])
    assert problem == "there is no op 'lineer'; did you mean 'linear'? known: linear, rms_norm"


class Fits(RMSNorm):
    def forward_oot(self, x: Tensor) -> Tensor:
        return x


class NotAnOp(nn.Module): ...


class OtherKey(RMSNorm):
    key = "rms_norms"

    def forward_oot(self, x: Tensor) -> Tensor:
        return x


class NewMeaning(RMSNorm):
    def forward_native(self, x: Tensor) -> Tensor:
        return x


class NewCall(RMSNorm):
    def __call__(self, x: Tensor) -> Tensor:
        return x


class NewInit(RMSNorm):
    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__(hidden_size, eps, torch.float32)


class OtherNames(RMSNorm):
    def __init__(self, size: int, eps: float, dtype: torch.dtype) -> None:
        super().__init__(size, eps, dtype)


class OtherForward(RMSNorm):
    def forward_oot(self, x: Tensor, residual: Tensor) -> Tensor:
        return x


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (NotAnOp, "does not derive from dougong.ops.norm.RMSNorm, the class of op 'rms_norm'"),
        (Linear, "does not derive from dougong.ops.norm.RMSNorm"),
        (good, "does not derive from dougong.ops.norm.RMSNorm"),
        (RMSNorm, "it is the op's own class"),
        (OtherKey, "its key is 'rms_norms' and it is registered for 'rms_norm'"),
        (NewMeaning, "it defines forward_native, which says what the op means"),
        (NewCall, "it defines __call__"),
        (NewInit, "its __init__ takes (hidden_size, eps); it is made with those of RMSNorm"),
        (OtherNames, "its __init__ takes (size, eps, dtype); it is made with those of RMSNorm"),
        (OtherForward, "it takes (x, residual) and is called with (x)"),
    ],
)
def test_a_class_that_cannot_take_an_ops_place_is_refused(target: Any, told: str) -> None:
    (problem,) = class_problems(target, RMSNorm)
    assert told in problem


def test_a_class_that_can_has_no_problem_and_may_compute_nothing() -> None:
    class Idle(RMSNorm): ...

    class Derived(Fits): ...

    assert [list(class_problems(cls, RMSNorm)) for cls in (Fits, Idle, Derived)] == [[], [], []]
    assert [has_own_forward_oot(cls, RMSNorm) for cls in (Fits, Idle, Derived)] == [
        True,
        False,
        True,
    ]


class OwnOp(CustomOp):
    key = "acme/own"
    property_names = ("size",)
    kernel_arg_names = ("size",)
    size = 3

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        return cls(), (torch.ones(2),)

    def forward_native(self, x: Tensor) -> Tensor:
        return x

    def kernel_args(self) -> tuple[Any, ...]:
        return (self.size,)


def changed(**members: Any) -> type:
    return type("Changed", (OwnOp,), {"key": "acme/changed"} | members)


async def waits(self: CustomOp, x: Tensor) -> Tensor:
    return x


def fails(self: CustomOp, x: Tensor) -> Tensor:
    raise ValueError("odd size")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: NotAnOp, "does not derive from dougong.ops.custom_op.CustomOp"),
        (lambda: changed(key="plain"), "its key 'plain' is not namespaced"),
        (lambda: type("Heir", (OwnOp,), {}), "it inherits its key 'acme/own'"),
        (lambda: changed(__call__=fails), "it defines __call__"),
        (lambda: changed(forward_native=CustomOp.forward_native), "defines no forward_native"),
        (lambda: changed(forward_native=lambda self: None), "forward_native takes no arguments"),
        (lambda: changed(forward_native=waits), "forward_native: it is a coroutine function"),
        (lambda: changed(forward_native=fails), "its own example(): ValueError: odd size"),
        (lambda: changed(example=CustomOp.example), "defines no example()"),
        (
            lambda: changed(example=classmethod(lambda cls: (OwnOp(), ()))),
            "its example() makes a OwnOp",
        ),
        (lambda: changed(may_mutate=("y",)), "may_mutate names y; its arguments are ('x',)"),
        (lambda: changed(property_names=("absent",)), "AttributeError"),
        (lambda: changed(size=0.5), "its properties size are no int, str or bool"),
        (lambda: changed(kernel_arg_names=()), "gives 1 values and kernel_arg_names has 0"),
    ],
)
def test_a_plugins_op_that_does_not_work_is_refused(make: Callable[[], type], told: str) -> None:
    (problem,) = op_problems(make(), {"rms_norm"})
    assert told in problem


def test_a_plugins_op_that_works_is_tried_without_touching_random_numbers() -> None:
    class Noisy(OwnOp):
        key = "acme/noisy"

        @classmethod
        def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
            return cls(), (torch.randn(2),)

    before = torch.get_rng_state()
    assert list(op_problems(Noisy, {"rms_norm"})) == []
    assert torch.equal(torch.get_rng_state(), before)


def test_a_class_that_computes_later_or_asks_for_what_is_not_stated_is_refused() -> None:
    class Later(RMSNorm):
        async def forward_oot(self, x: Tensor) -> Tensor:
            return x

    (problem,) = class_problems(Later, RMSNorm)
    assert "coroutine function" in problem

    class Fine(RMSNorm):
        def forward_oot(self, x: Tensor) -> Tensor:
            return x

    assert list(class_problems(Fine, RMSNorm, KernelTerms(Needs(hidden_size=4)))) == []
    (problem,) = class_problems(Fine, RMSNorm, KernelTerms(Needs(heads=4)))
    assert "asks for heads, which rms_norm does not state" in problem
