"""Registrations judged together: every problem told, wheels that collide both named."""

from __future__ import annotations

import pytest
import torch

from dougong.contracts import (
    Mark,
    OpAssignment,
    OpPiece,
    PluginError,
    Registration,
    RegistrationKind,
)
from dougong.errors import ContractError
from dougong.ops import CustomOp, MultipleOf, Needs, RMSNorm, register_kernel, register_op
from dougong.ops.registry import OpRegistry
from tests.support.acme_ops import AcmeNorm, OtherNorm, Twice, anything, wide
from tests.support.registrations import registrations, registry


def test_an_unknown_op_is_refused_with_the_nearest_and_the_known_ones() -> None:
    @register_kernel("rms_nrom", name="acme/typo")
    def typo(x: torch.Tensor) -> torch.Tensor:
        return x

    told = (
        r"acme 1.0 registers.*\n.*acme/typo.*'rms_nrom'; did you mean 'rms_norm'\? known: .*linear"
    )
    with pytest.raises(PluginError, match=told):
        registry(typo)


def test_all_problems_of_a_wheel_stand_in_one_message() -> None:
    @register_kernel("nothing", name="acme/a")
    def nowhere(x: torch.Tensor) -> torch.Tensor:
        return x

    @register_kernel("rms_norm", name="acme/b")
    def short(x: torch.Tensor) -> torch.Tensor:
        return x

    with pytest.raises(ContractError) as caught:
        registry(nowhere, wide, short)
    assert len(caught.value.problems) == 2
    assert caught.value.plugin == "acme"


def test_problems_of_two_wheels_and_a_collision_all_stand_in_the_message() -> None:
    @register_kernel("nothing", name="acme/a")
    def nowhere(x: torch.Tensor) -> torch.Tensor:
        return x

    @register_kernel("silu_and_mul", name="acme/any")
    def same_name(x: torch.Tensor) -> torch.Tensor:
        return x

    both = [
        *registrations(nowhere, anything),
        *registrations(nowhere, same_name, distribution="other 2.0"),
    ]
    both[2] = Registration(mark=both[0].mark, target=wide, plugin="x", distribution="other 2.0")
    with pytest.raises(PluginError) as caught:
        OpRegistry.from_registrations(both)
    text = str(caught.value)
    assert "implementation 'acme/any' is registered by acme 1.0" in text
    assert "and by other 2.0" in text
    assert "what acme 1.0 registers" in text
    assert "what other 2.0 registers" in text


def test_one_name_from_two_wheels_is_refused_naming_both() -> None:
    @register_kernel("rms_norm", name="acme/any")
    def second(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return x

    both = [*registrations(anything), *registrations(second, distribution="other 2.0")]
    with pytest.raises(PluginError, match=r"'acme/any' .* by acme 1.0 .* and by other 2.0"):
        OpRegistry.from_registrations(both)


def test_two_classes_for_one_op_are_refused_naming_both_wheels() -> None:
    both = [*registrations(AcmeNorm), *registrations(OtherNorm, distribution="other 2.0")]
    told = r"class of op 'rms_norm' is registered by acme 1.0 .*AcmeNorm.* and by other 2.0"
    with pytest.raises(PluginError, match=told):
        OpRegistry.from_registrations(both)


def test_one_op_from_two_wheels_is_refused_naming_both() -> None:
    class Double(Twice):
        key = "acme/twice"

        def forward_native(self, x: torch.Tensor) -> torch.Tensor:
            return x + x

    both = [
        *registrations(Twice),
        *registrations(register_op(Double), distribution="other 2.0"),
    ]
    with pytest.raises(PluginError, match=r"op 'acme/twice' is registered by acme 1.0"):
        OpRegistry.from_registrations(both)


def test_other_kinds_of_registrations_are_passed_over() -> None:
    model = Mark(kind=RegistrationKind.MODEL, key="AcmeLM", name="AcmeLM")
    given = Registration(mark=model, target="a.b:C", plugin="acme", distribution="acme 1.0")
    assert OpRegistry.from_registrations([given]).candidates() == ()


def test_a_mark_made_by_hand_is_refused() -> None:
    mark = Mark(kind=RegistrationKind.KERNEL, key="rms_norm", name="acme/x")
    given = Registration(mark=mark, target=wide, plugin="acme", distribution="acme 1.0")
    with pytest.raises(ContractError, match="not marked with register_kernel"):
        OpRegistry.from_registrations([given])


def test_a_class_has_conditions_like_a_kernel() -> None:
    needs = Needs(library="acme-lib", hidden_size=MultipleOf(64))

    @CustomOp.register_oot("rms_norm", when=needs)
    class Conditional(RMSNorm):
        def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
            return x

    found = registry(Conditional)
    (candidate,) = found.candidates()
    assert candidate.when == needs
    plan = [OpAssignment(key="rms_norm", paths=("0",), pieces=(OpPiece(candidate.name),))]
    with found.overriding(plan):
        kinds = [type(RMSNorm(size, 1e-6, torch.float32)) for size in (64, 65)]
    assert kinds == [Conditional, RMSNorm]


def test_a_class_whose_condition_asks_for_what_the_op_does_not_state_is_refused() -> None:
    @CustomOp.register_oot("rms_norm", when=Needs(hiden_size=4))
    class Misspelt(RMSNorm):
        def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
            return x

    with pytest.raises(ContractError, match=r"asks for hiden_size.*did you mean 'hidden_size'"):
        registry(Misspelt)


def test_one_wheel_that_uses_a_name_twice_is_told_of_itself() -> None:
    @register_kernel("silu_and_mul", name="acme/any")
    def other(x: torch.Tensor) -> torch.Tensor:
        return x

    with pytest.raises(PluginError) as caught:
        registry(anything, other)
    told = str(caught.value)
    assert told.startswith("acme 1.0 registers implementation 'acme/any' twice, as ")
    assert "two wheels" not in told
    with pytest.raises(PluginError, match=r"acme 1\.0 registers class of op 'rms_norm' twice"):
        registry(AcmeNorm, OtherNorm)
