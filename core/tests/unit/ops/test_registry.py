"""Registering implementations: what is refused, and what is one and the same."""

from __future__ import annotations

import pytest
import torch

from dougong.contracts import PluginError
from dougong.ops import OP_KEYS, OpRegistry, register_kernel
from tests.support.registrations import registrations, registry


def test_an_unknown_op_is_refused_with_the_known_ones() -> None:
    @register_kernel("rms_nrom", name="acme/typo")
    def typo(x: torch.Tensor) -> torch.Tensor:
        return x

    with pytest.raises(PluginError, match=r"acme 1.0 registers .*'rms_nrom'.*known: .*rms_norm"):
        registry(typo)


def test_one_name_from_two_wheels_is_refused_naming_both() -> None:
    @register_kernel("rms_norm", name="acme/rms_norm")
    def first(x: torch.Tensor) -> torch.Tensor:
        return x

    @register_kernel("rms_norm", name="acme/rms_norm")
    def second(x: torch.Tensor) -> torch.Tensor:
        return x

    both = [*registrations(first), *registrations(second, distribution="other 2.0")]
    with pytest.raises(PluginError, match=r"acme 1.0 and by other 2.0"):
        OpRegistry.from_registrations(both, OP_KEYS)


def test_the_same_object_twice_is_registered_once() -> None:
    @register_kernel("rms_norm", name="acme/rms_norm")
    def kernel(x: torch.Tensor) -> torch.Tensor:
        return x

    twice = [*registrations(kernel), *registrations(kernel)]
    assert len(OpRegistry.from_registrations(twice, OP_KEYS).candidates("rms_norm")) == 1
