"""The base class: what an op says of itself, what a call of it runs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from dougong.ops import NATIVE, CustomOp, RMSNorm
from dougong.ops.dispatch import BoundPiece


class Sum(CustomOp):
    key = "acme/sum"
    property_names = ("size",)

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward_native(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        return x if y is None else x + y


def test_before_anything_is_bound_native_runs() -> None:
    op = Sum(3)
    assert op.implementation == NATIVE
    assert op.assigned == (NATIVE,)
    assert op(torch.ones(2), torch.ones(2)).tolist() == [2, 2]
    assert op.kernel == op.forward_native


def test_what_is_bound_runs_and_is_named() -> None:
    op = Sum(3)
    op.bind("acme/x", lambda x: x * 5)
    assert op(torch.ones(1)).item() == 5
    assert op.implementation == "acme/x"
    op.bind(NATIVE, op.forward_native)
    assert op(torch.ones(1)).item() == 1


def test_an_out_of_tree_forward_is_native_unless_it_is_written() -> None:
    op = Sum(3)
    assert op.forward_oot(torch.ones(1)).item() == 1


def test_properties_are_attributes_by_name() -> None:
    assert Sum(3).properties() == {"size": 3}


def test_arguments_are_those_of_the_native_forward() -> None:
    assert Sum.arg_names() == ("x", "y")
    assert Sum.num_args() is None, "one may be left out"
    assert RMSNorm.num_args() == 1


def test_an_argument_that_may_be_left_out_may_be_left_out_of_any_piece() -> None:
    op = Sum(3)
    op.bind_pieces([BoundPiece("acme/x", lambda *args: len(args), 2), BoundPiece("acme/y", len)])
    assert op(torch.ones(1)) == 1
    assert op(torch.ones(1), torch.ones(1)) == 2
    assert op(torch.ones(3)) == 3
    assert op.implementation == "acme/x up to 2, then acme/y"


def test_an_op_without_a_meaning_or_an_example_says_so() -> None:
    class Empty(CustomOp):
        key = "acme/empty"

    with pytest.raises(TypeError, match="Empty defines no forward_native"):
        Empty()(torch.ones(1))
    with pytest.raises(TypeError, match=r"Empty defines no example\(\)"):
        Empty.example()


def test_a_copy_runs_on_its_own_weights() -> None:
    op = RMSNorm(2, 0.0, torch.float32)
    op.weight.data.fill_(1.0)
    twin = copy.deepcopy(op)
    twin.weight.data.fill_(3.0)
    x = torch.ones(1, 2)
    assert op(x).tolist() == [[1, 1]]
    assert twin(x).tolist() == [[3, 3]]
    twin.bind("acme/x", lambda x: x * 7)
    assert copy.deepcopy(twin)(x).tolist() == [[7, 7]]
    assert op(x).tolist() == [[1, 1]]


def test_a_kernel_takes_the_ops_arguments_by_position() -> None:
    calls: list[Any] = []
    op = Sum(3)
    op.bind("acme/x", lambda *args: calls.append(args))
    op(1, 2)
    assert calls == [(1, 2)]
