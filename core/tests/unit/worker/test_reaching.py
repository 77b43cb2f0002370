"""Token counts that come to an implementation, past the slots around it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dougong.contracts import OpPiece, RankPlan
from dougong.contracts.rank_plan import NATIVE
from dougong.ops import GateUpAct
from dougong.worker.reaching import reaching_counts
from tests.support.plans import plan_for_model

FEW = OpPiece("acme/few", 8)
REST = OpPiece(NATIVE)
INNER = "mlp.act"


def fused_plan(slot: tuple[OpPiece, ...], inner: tuple[OpPiece, ...]) -> RankPlan:
    model = nn.ModuleDict({"mlp": GateUpAct(8, 8, "silu", False, torch.float32)})
    return plan_for_model(model, implementations={"gate_up_act": slot, "silu_and_mul": inner})


@pytest.mark.parametrize(
    ("slot", "inner", "counts"),
    [
        ((FEW, REST), (OpPiece("acme/in"),), [[9]]),
        ((REST,), (OpPiece("acme/in"),), [[1]]),
        ((OpPiece(NATIVE, 4), OpPiece("acme/few", 8), REST), (OpPiece("acme/in"),), [[1, 9]]),
        ((FEW, REST), (OpPiece("acme/a", 12), OpPiece("acme/b")), [[9], [13]]),
        ((FEW, REST), (OpPiece("acme/a", 8), OpPiece("acme/b")), [[], [9]]),
        ((OpPiece("acme/slot"),), (OpPiece("acme/in"),), [[]]),
    ],
)
def test_what_is_inside_a_fused_slot_is_reached_where_the_slot_is_native(
    slot: tuple[OpPiece, ...], inner: tuple[OpPiece, ...], counts: list[list[int]]
) -> None:
    found = reaching_counts(fused_plan(slot, inner))
    assert [counts for path, _, counts in found if path == INNER] == counts
