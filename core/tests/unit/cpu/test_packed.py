"""Packed weights: one copy in memory, and the original kept for whoever still reads it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from dougong.contracts import OpPiece
from dougong.cpu import native
from dougong.cpu.native import NotBuilt
from dougong.cpu.native_library import get_library
from dougong.ops import (
    NATIVE,
    Embedding,
    GateUpAct,
    Linear,
    LMHead,
)
from tests.support.cpu_ops import OURS, bound, unmet

DTYPES = (torch.float32, torch.bfloat16)
TOLERANCES = {torch.float32: (1e-5, 1e-5), torch.bfloat16: (2e-2, 2e-2)}


@pytest.fixture(autouse=True)
def _needs_the_library() -> None:
    library = get_library()
    assert not isinstance(library, NotBuilt), library.reason


def tied(dtype: torch.dtype, *, is_head_first: bool = False) -> tuple[Any, torch.Tensor]:
    """Embedding and head of one weight, and a copy of that weight."""
    torch.manual_seed(0)
    embedding = Embedding(70, 48, dtype)
    embedding.weight.data.normal_()
    parts = {"embed": embedding, "head": LMHead(70, 48, dtype, embedding)}
    order = reversed(parts) if is_head_first else parts
    model = nn.ModuleDict({name: parts[name] for name in order})
    return model, embedding.weight.detach().clone()


def check_tied(model: Any, table: torch.Tensor) -> None:
    ids = torch.tensor([69, 0, 17, 17])
    assert torch.equal(model["embed"](ids), table[ids])
    rtol, atol = TOLERANCES[table.dtype]
    hidden = table[:3]
    expected = (hidden.float() @ table.float().T).to(table.dtype).float()
    torch.testing.assert_close(model["head"](hidden), expected, rtol=rtol, atol=atol * 10)


@pytest.mark.parametrize("is_head_first", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tied_head_and_its_embedding_share_one_packed_weight(
    dtype: torch.dtype, is_head_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = []
    pack = native.pack_linear

    def counting(*args: Any, **kwargs: Any) -> Any:
        packed.append(kwargs)
        return pack(*args, **kwargs)

    monkeypatch.setattr(native, "pack_linear", counting)
    model, table = tied(dtype, is_head_first=is_head_first)
    assert bound(model) == {
        "embedding": {"cpu/embedding": 1},
        "lm_head": {"cpu/packed_lm_head": 1},
    }
    assert packed == [{"consume": True}]
    assert model["embed"].weight.numel() == 0
    check_tied(model, table)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "names",
    [
        {"embedding": NATIVE},
        {"lm_head": NATIVE},
        {"lm_head": (OpPiece("cpu/packed_lm_head", 8), OpPiece(NATIVE))},
        {"embedding": (OpPiece(NATIVE, 8), OpPiece("cpu/embedding"))},
    ],
    ids=str,
)
def test_a_shared_weight_stays_while_anything_else_reads_it(
    names: dict[str, Any], dtype: torch.dtype
) -> None:
    model, table = tied(dtype)
    bound(model, **names)
    assert torch.equal(model["embed"].weight, table)
    check_tied(model, table)


def test_an_embedding_beside_another_head_packs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "pack_linear", None)
    model, table = tied(torch.float32)
    bound(model, lm_head=NATIVE)
    check_tied(model, table)


@pytest.mark.parametrize(
    "op",
    [Linear(48, 33, False, torch.float32), GateUpAct(48, 40, "silu", False, torch.float32)],
    ids=["linear", "gate_up_act"],
)
def test_a_weight_is_kept_for_the_token_counts_that_others_compute(op: Linear) -> None:
    op.weight.data.normal_()
    weight = op.weight.detach().clone()
    bound(op, **{op.key: (OpPiece(OURS[op.key], 4), OpPiece(NATIVE))})
    assert torch.equal(op.weight, weight)
    x = torch.randn(4, 48) * 0.3
    torch.testing.assert_close(op(x), op.forward_native(x), rtol=1e-5, atol=1e-5)
    wide = torch.randn(5, 48)
    assert torch.equal(op(wide), op.forward_native(wide))


def test_an_activation_without_a_native_form_is_a_condition() -> None:
    told = unmet(GateUpAct(16, 16, "gelu", False, torch.float32))
    assert told == "activation gelu; takes gelu_pytorch_tanh or silu"
    assert unmet(GateUpAct(16, 16, "silu", False, torch.float32)) == ""


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_embedding_without_a_tied_head_reads_its_own_table(dtype: torch.dtype) -> None:
    embedding = Embedding(71, 33, dtype)
    embedding.weight.data.normal_()
    assert bound(embedding) == {"embedding": {"cpu/embedding": 1}}
    ids = torch.tensor([70, 0, 5, 5])
    assert torch.equal(embedding(ids), embedding.weight[ids])


def check_linear(op: Linear, weight: torch.Tensor) -> None:
    x = torch.randn(3, weight.shape[1]) * 0.3
    torch.testing.assert_close(op(x), x @ weight.T, rtol=1e-5, atol=1e-5)


def test_a_weight_that_two_products_share_is_packed_for_each_and_stays() -> None:
    one, other = (Linear(48, 48, False, torch.float32) for _ in range(2))
    one.weight.data.normal_()
    other.weight = one.weight
    weight = one.weight.detach().clone()
    assert bound(nn.ModuleList([one, other])) == {"linear": {"cpu/packed_linear": 2}}
    assert torch.equal(one.weight, weight)
    check_linear(one, weight)
    check_linear(other, weight)


def test_a_head_that_is_a_plain_product_on_the_embeddings_weight_leaves_the_table() -> None:
    embedding, head = Embedding(70, 48, torch.float32), Linear(48, 70, False, torch.float32)
    embedding.weight.data.normal_()
    head.weight = embedding.weight
    weight = head.weight.detach().clone()
    bound(nn.ModuleList([embedding, head]))
    ids = torch.tensor([69, 0])
    assert torch.equal(embedding(ids), weight[ids])
    check_linear(head, weight)


@pytest.mark.parametrize("which", ["head", "table"])
def test_a_tied_pair_keeps_its_weight_for_a_third_one(which: str) -> None:
    model, table = tied(torch.float32)
    third = LMHead(70, 48, torch.float32, model["embed"] if which == "head" else None)
    third.weight = model["embed"].weight
    model["third"] = third
    bound(model)
    assert torch.equal(model["embed"].weight, table)
    check_tied(model, table)
    expected = table[:3] @ table.T
    torch.testing.assert_close(third(table[:3]), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("slot", [NATIVE, "cpu/packed_gate_up_act"])
def test_a_fused_slots_weight_is_released_by_whoever_computes(slot: str) -> None:
    op = GateUpAct(48, 40, "silu", False, torch.float32)
    op.weight.data.normal_()
    x = torch.randn(3, 48) * 0.3
    expected = op.forward_native(x)
    names = {"gate_up_act": slot, "linear": "cpu/packed_linear" if slot == NATIVE else NATIVE}
    bound(op, **names)
    assert op.weight.numel() == 0
    torch.testing.assert_close(op(x), expected, rtol=1e-5, atol=1e-5)
