"""Calls are noted while somebody asks, of what is not native, and nothing else changes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dougong.contracts import OpPiece
from dougong.contracts.rank_plan import NATIVE
from dougong.ops import RMSNorm, SiluAndMul, register_kernel
from dougong.ops.binding import bind_ops
from dougong.worker.called_pieces import noting_calls
from tests.support.registrations import assignments, registry


@register_kernel("rms_norm", name="acme/norm")
def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    if x.shape[0] == 5:
        raise ValueError("no tile of 5")
    return x


def test_each_piece_that_ran_is_noted_by_the_place_of_its_op() -> None:
    model = nn.ModuleDict({"norm": RMSNorm(4, 1e-6, torch.float32), "act": SiluAndMul()})
    pieces = (OpPiece("acme/norm", 2), OpPiece(NATIVE, 3), OpPiece("acme/norm"))
    bind_ops(model, registry(norm), assignments(model, {"rms_norm": pieces}))
    op, bound = model["norm"], model["norm"].pieces
    with noting_calls(model) as was_called:
        assert model["act"].kernel == model["act"].forward_native
        op(torch.ones(2, 4))
        op(torch.ones(3, 4))
        assert [was_called("norm", index) for index in range(3)] == [True, False, False]
        with pytest.raises(ValueError, match="no tile"):
            op(torch.ones(5, 4))
        assert was_called("norm", 2), "it was met, and its failure is known"
        assert not was_called("act", 0)
    assert op.pieces == bound
