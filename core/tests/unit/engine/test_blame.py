"""Which vendor's code an exception came out of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dougong.contracts import OpAssignment, OpPiece, OutOfDeviceMemory
from dougong.engine.blame import note_blame, told_blame
from dougong.engine.commands import Died
from dougong.engine.wire import pack_event, unpack_event
from dougong.ops import register_kernel
from dougong.planner import ExecutionPlan, OpPlan
from tests.support.made_up_plans import plain_plan
from tests.support.registrations import registrations


@register_kernel("linear", name="acme/linear")
def linear(x: Any, weight: Any, bias: Any) -> Any:
    raise x


def plan(implementation: str) -> ExecutionPlan:
    assignment = OpAssignment(key="linear", paths=("a",), pieces=(OpPiece(implementation),))
    op = OpPlan(key="linear", properties={}, assignment=assignment, author="core")
    return replace(plain_plan(), ops=(op,))


def blamed(error: Exception, implementation: str = "acme/linear") -> Exception:
    with pytest.raises(type(error)) as caught:
        linear(error, None, None)
    note_blame(caught.value, plan(implementation), registrations(linear))
    return caught.value


def test_the_kernel_that_raised_is_named() -> None:
    told = told_blame(blamed(RuntimeError("no tile")))
    assert told.startswith(" It came out of acme/linear, which computes op linear. ")
    assert "--op linear=native" in told


def test_an_error_made_of_the_kernels_own_names_it_too() -> None:
    def wrapped() -> None:
        try:
            linear(RuntimeError("no tile"), None, None)
        except RuntimeError as exc:
            raise ValueError("wrapped") from exc

    with pytest.raises(ValueError, match="wrapped") as caught:
        wrapped()
    note_blame(caught.value, plan("acme/linear"), registrations(linear))
    assert "acme/linear" in told_blame(caught.value)


def test_what_does_not_run_and_a_full_device_are_not_blamed() -> None:
    assert told_blame(blamed(RuntimeError("no tile"), "native")) == ""
    assert told_blame(blamed(OutOfDeviceMemory("full"))) == ""
    assert told_blame(RuntimeError("somebody else's")) == ""


def test_it_crosses_a_process_border() -> None:
    event = unpack_event(pack_event(Died(blamed(RuntimeError("no tile")))))
    assert isinstance(event, Died)
    assert "acme/linear" in told_blame(event.error)
