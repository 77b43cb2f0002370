"""Ops on weights in blocks: bound like any, one copy of a tied table, memory given back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dougong.cpu.blocks import BlockEmbedding, BlockLMHead
from dougong.ops import CustomOp, Embedding, GateUpAct, Linear, LMHead
from dougong.ops.stored_weight import STORED_FORMATS, plain_rows
from tests.support.cpu_ops import OF_BLOCKS, bound
from tests.unit.cpu.native.test_blocks import random_blocks

DTYPES = [torch.float32, torch.bfloat16]


def stored(op: Linear | GateUpAct | Embedding | LMHead, name: str, columns: int) -> torch.Tensor:
    """Fill an op with blocks; the numbers they stand for."""
    op.store_as(name)
    op.weight.data.copy_(random_blocks(name, op.weight.shape[0], columns))
    return plain_rows(op.weight, name, torch.float32)


def near(found: torch.Tensor, exact: torch.Tensor) -> None:
    tolerance = 0.01 if found.dtype is torch.bfloat16 else 1e-5
    error = (found.double() - exact.double()).abs().max()
    assert error <= tolerance * exact.double().abs().max()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", STORED_FORMATS)
def test_a_linear_computes_what_its_native_form_means(name: str, dtype: torch.dtype) -> None:
    op = Linear(96, 70, True, dtype)
    assert op.bias is not None
    op.bias.data.normal_()
    weight, x = stored(op, name, 96), torch.randn(5, 96).to(dtype)
    meant = op(x)
    near(meant, x.float() @ weight.T + op.bias.float())
    assert bound(op, **OF_BLOCKS) == {"linear": {OF_BLOCKS["linear"]: 1}}
    near(op(x), meant)
    assert op.weight.numel() == 0, "the kernel has the only copy"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_gated_pair_does_too(dtype: torch.dtype) -> None:
    op = GateUpAct(64, 48, "silu", False, dtype)
    weight, x = stored(op, "q4_1", 64), torch.randn(5, 64).to(dtype)
    gate, up = (x.float() @ half.T for half in weight.chunk(2))
    near(op(x), nn.functional.silu(gate) * up)
    bound(op, gate_up_act=OF_BLOCKS["gate_up_act"], linear="native")
    near(op(x), nn.functional.silu(gate) * up)
    assert op.weight.numel() == 0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tied_table_is_packed_once_for_both(dtype: torch.dtype) -> None:
    table = Embedding(71, 64, dtype)
    head = LMHead(71, 64, dtype, table)
    pair = nn.ModuleDict({"table": table, "head": head})
    weight = stored(head, "q8_0", 64)
    assert head.weight is table.weight
    assert table.weight_format == head.weight_format == "q8_0"
    ids, x = torch.tensor([70, 0, 5, 5]), torch.randn(3, 64).to(dtype)
    near(table(ids), weight[ids].to(dtype))
    bound(pair, **OF_BLOCKS)
    assert torch.equal(table(ids), weight[ids].to(dtype))
    near(head(x), x.float() @ weight.T)
    rows, logits = (op.pieces[0].call.__self__ for op in (table, head))  # type: ignore[attr-defined]  # methods
    assert isinstance(rows, BlockEmbedding)
    assert isinstance(logits, BlockLMHead)
    assert rows.packed is logits.packed
    assert table.weight.numel() == head.weight.numel() == 0


def test_a_table_or_a_head_alone_keeps_its_own() -> None:
    ops: list[CustomOp] = []
    for op in (Embedding(71, 64, torch.float32), LMHead(71, 64, torch.float32)):
        weight = stored(op, "q4_0", 64)
        bound(op, **OF_BLOCKS)
        x = torch.tensor([70, 3]) if isinstance(op, Embedding) else torch.randn(2, 64)
        near(op(x), weight[x] if isinstance(op, Embedding) else x @ weight.T)
        ops.append(op)
    assert all(parameter.numel() == 0 for op in ops for parameter in op.parameters())


def test_another_dtype_is_refused() -> None:
    op = Linear(64, 32, False, torch.bfloat16)
    stored(op, "q4_0", 64)
    bound(op, **OF_BLOCKS)
    with pytest.raises(TypeError, match=r"made for tensors of torch\.bfloat16"):
        op(torch.randn(2, 64))
