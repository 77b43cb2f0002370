"""What this wheel computes for the ops means what they mean, in every dtype it takes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dougong.contracts import Mark, UnsupportedError
from dougong.ops import FusedAddRMSNorm, GeluAndMul, MoEExperts, RotaryEmbedding
from dougong_conformance.ladder.stand_in import StandIn, define

from dougong_xpu import hooks, kernels, moe
from tests.plugin.ops_under_test import (
    HEADS,
    MARKED,
    OURS,
    TOLERANCES,
    call_of,
    drawn,
    filled,
    names,
    native,
    run,
    table,
)
from tests.references import REFERENCES, golden

DTYPES = tuple(TOLERANCES)


def dtypes_of(mark: Mark) -> list[torch.dtype]:
    taken = mark.details.when.dtype
    return [one for one in DTYPES if not taken or str(one).removeprefix("torch.") in taken]


CASES = [
    pytest.param(target, mark, dtype, id=f"{mark.name}-{str(dtype).removeprefix('torch.')}")
    for target, mark in OURS
    for dtype in dtypes_of(mark)
]


def assert_alike(found: Any, expected: Any, dtype: torch.dtype) -> None:
    found, expected = (one if isinstance(one, tuple) else (one,) for one in (found, expected))
    tolerance = TOLERANCES[dtype]
    for ours, meant in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, meant, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("target", "mark", "dtype"), CASES)
def test_an_implementation_means_what_its_op_means(
    target: Any, mark: Mark, dtype: torch.dtype, library: StandIn
) -> None:
    op, args = call_of(mark, dtype)
    expected, before = native(op, args), copy.deepcopy(args)
    assert_alike(run(target, mark, op, args), expected, dtype)
    assert sum(library.calls.values()) > 0, "it computed nothing by the library"
    written = {
        name
        for name, old, new in zip(op.arg_names(), before, args, strict=True)
        if torch.is_tensor(new) and not torch.equal(old, new)
    }
    assert written <= set(mark.details.mutates)


def test_a_reference_that_is_wrong_would_be_seen() -> None:
    def halved(result: torch.Tensor, input: torch.Tensor) -> None:
        result.copy_(input.chunk(2, dim=-1)[0])

    target, mark = next(one for one in OURS if one[1].key == "silu_and_mul")
    op, args = call_of(mark, torch.float32)
    expected = native(op, args)
    with define(golden(), {**REFERENCES, "_C::silu_and_mul": halved}):
        found = run(target, mark, op, args)
    with pytest.raises(AssertionError):
        assert_alike(found, expected, torch.float32)


def test_every_op_that_is_registered_has_a_call_here() -> None:
    assert {mark.key for _, mark in MARKED} == names()


@pytest.mark.parametrize("dtype", DTYPES)
def test_heads_of_a_wider_tensor_are_normalised_where_they_lie(
    dtype: torch.dtype, library: StandIn
) -> None:
    target, mark = next(one for one in OURS if one[1].key == "rms_norm")
    op, args = HEADS(mark, dtype)
    assert_alike(run(target, mark, op, args), native(op, args), dtype)


def test_the_first_norm_of_a_model_has_no_residual(library: StandIn) -> None:
    op = filled(FusedAddRMSNorm(64, 1e-5, torch.float32))
    x = drawn(3, 64, dtype=torch.float32)
    normed, total = kernels.fused_add_rms_norm(x, None, *op.kernel_args())
    assert total is x
    assert_alike(normed, op.forward_native(x, None)[0], torch.float32)
    assert library.calls["_C::fused_add_rms_norm"] == 0


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_each_approximation_is_an_op_of_its_own(approximate: str, library: StandIn) -> None:
    x = drawn(3, 48, dtype=torch.float32)
    found = kernels.gelu_and_mul(x, approximate)
    assert_alike(found, GeluAndMul(approximate).forward_native(x), torch.float32)
    name = "gelu_tanh_and_mul" if approximate == "tanh" else "gelu_and_mul"
    assert dict(library.calls) == {f"_C::{name}": 1}


def test_a_part_of_a_head_and_neighbouring_pairs_are_rotated_too(library: StandIn) -> None:
    op = RotaryEmbedding(16, 8, table(32, 8), is_neox=False)
    args = (
        torch.tensor([0, 31]),
        drawn(2, 4, 16, dtype=torch.float32),
        drawn(2, 2, 16, dtype=torch.float32, seed=1),
    )
    expected = native(op, args)
    assert_alike(kernels.XpuRotaryEmbedding(op)(*args), expected, torch.float32)


def test_keys_that_lie_otherwise_than_queries_are_copied_first(library: StandIn) -> None:
    op = RotaryEmbedding(16, 16, table(32, 16))
    k = drawn(2, 2, 32, dtype=torch.float32)[..., :16]
    args = torch.tensor([0, 31]), drawn(2, 4, 16, dtype=torch.float32, seed=1), k
    expected = native(op, args)
    assert_alike(kernels.XpuRotaryEmbedding(op)(*args), expected, torch.float32)


def test_the_table_is_converted_once(library: StandIn) -> None:
    op = RotaryEmbedding(16, 16, table(32, 16))
    kernel = kernels.XpuRotaryEmbedding(op)
    q, k = drawn(2, 4, 16, dtype=torch.bfloat16), drawn(2, 2, 16, dtype=torch.bfloat16)
    kernel(torch.tensor([0, 1]), q, k)
    first = kernel._table
    kernel(torch.tensor([2, 3]), q, k)
    assert kernel._table is first
    assert op.cos_sin_cache.dtype is torch.float32, "others read the op's own"


@pytest.mark.parametrize("top_k", [1, 3, 5, 9])
def test_any_number_of_experts_per_token_is_computed(top_k: int, library: StandIn) -> None:
    op = filled(MoEExperts(12, 32, 32, "gelu", torch.bfloat16))
    assert isinstance(op, MoEExperts)
    expert_ids = torch.stack([torch.randperm(12, generator=torch.Generator().manual_seed(i))[:top_k]
                              for i in range(4)])  # fmt: skip
    shares = drawn(4, top_k, dtype=torch.float32).softmax(-1)
    args = drawn(4, 32, dtype=torch.bfloat16), expert_ids, shares
    expected = native(op, args)
    assert_alike(moe.XpuGroupedExperts(op)(*args), expected, torch.bfloat16)


def test_more_experts_per_token_than_a_kernel_takes_are_refused(library: StandIn) -> None:
    op = filled(MoEExperts(12, 32, 32, "silu", torch.bfloat16))
    assert isinstance(op, MoEExperts)
    ids = torch.zeros(1, 11, dtype=torch.int64)
    with pytest.raises(UnsupportedError, match="at most 10"):
        moe.XpuGroupedExperts(op)(drawn(1, 32, dtype=torch.bfloat16), ids, ids.float())


def test_experts_give_the_memory_of_their_first_copy_back() -> None:
    op = filled(MoEExperts(4, 32, 32, "silu", torch.bfloat16))
    assert isinstance(op, MoEExperts)
    moe.XpuGroupedExperts(op)
    assert op.gate_up_weight.numel() > 0, "something else may read it"
    op.assigned = ("xpu/grouped_experts",)
    moe.XpuGroupedExperts(op)
    assert op.gate_up_weight.numel() == op.down_weight.numel() == 0


def test_hooks_name_every_module_with_marks() -> None:
    modules: Callable[[], Any] = hooks.dougong_register_ops
    named = {module.__name__ for module in modules()} | {hooks.__name__}
    assert named == {target.__module__ for target, _ in MARKED}
