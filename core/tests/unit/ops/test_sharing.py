"""Who holds the memory of an op's weights beside it, known before a kernel may destroy them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dougong.contracts.rank_plan import NATIVE
from dougong.ops import CustomOp, Embedding, GateUpAct, Linear, LMHead
from dougong.ops.outline import named_ops
from dougong.ops.sharing import note_sharers

OWN = "acme/own"


def linear() -> Linear:
    return Linear(4, 4, False, torch.float32)


def noted(module: nn.Module, **assigned: str | tuple[str, ...]) -> dict[str, CustomOp]:
    """Ops by path; each is assigned what its path or key says, else an implementation."""
    ops = dict(named_ops(module))
    for path, op in ops.items():
        names = assigned.get(path.replace(".", "_"), assigned.get(op.key, OWN))
        op.assigned = (names,) if isinstance(names, str) else names
    note_sharers(module, ops)
    return ops


def test_an_op_with_weights_of_its_own_is_alone_with_its_only_implementation() -> None:
    ops = noted(nn.ModuleList([linear(), linear()]))
    assert ops["0"].is_alone(OWN)
    assert not ops["0"].is_alone("acme/other")
    ops["1"].assigned = (OWN, NATIVE)
    assert not ops["1"].is_alone(OWN)


@pytest.mark.parametrize("part", ["whole", "rows"])
def test_two_ops_with_one_weight_or_a_part_of_it_are_not_alone(part: str) -> None:
    one, other = linear(), linear()
    rows = one.weight if part == "whole" else nn.Parameter(one.weight[:2], requires_grad=False)
    other.weight = rows
    noted(nn.ModuleList([one, other]))
    assert one.sharers == (other,)
    assert other.sharers == (one,)
    assert not one.is_alone(OWN)


def test_a_tied_pair_knows_each_other_and_a_module_that_is_no_op_counts() -> None:
    embedding = Embedding(8, 4, torch.float32)
    head = LMHead(8, 4, torch.float32, embedding)
    keeper = nn.Module()
    noted(nn.ModuleList([embedding, head]))
    assert (embedding.sharers, head.sharers) == ((head,), (embedding,))
    keeper.table = embedding.weight
    noted(nn.ModuleList([embedding, head, keeper]))
    assert set(head.sharers) == {embedding, keeper}


def test_a_slot_that_does_all_the_work_is_alone_with_what_its_parts_hold() -> None:
    slot = GateUpAct(4, 4, "silu", False, torch.float32)
    noted(nn.ModuleList([slot]), linear=NATIVE, silu_and_mul=NATIVE)
    assert slot.is_alone(OWN)


def test_a_part_is_alone_where_its_slot_is_native() -> None:
    slot = GateUpAct(4, 4, "silu", False, torch.float32)
    noted(nn.ModuleList([slot]), gate_up_act=NATIVE)
    assert slot.linear.is_alone(OWN)


@pytest.mark.parametrize("of_slot", [(OWN,), (OWN, NATIVE)], ids=str)
def test_where_both_have_an_implementation_neither_is_alone(of_slot: tuple[str, ...]) -> None:
    slot = GateUpAct(4, 4, "silu", False, torch.float32)
    noted(nn.ModuleList([slot]), gate_up_act=of_slot)
    assert not slot.linear.is_alone(OWN)
    assert not slot.is_alone(OWN)


def test_empty_weights_are_nobodys() -> None:
    one, other = linear(), linear()
    for op in (one, other):
        op.weight.data = torch.empty(0)
    noted(nn.ModuleList([one, other]))
    assert one.sharers == other.sharers == ()
