"""Every native op against the plain-torch meaning of the same op, in both dtypes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from dougong.contracts.registration import marked_objects
from dougong.cpu import kernels
from dougong.cpu import native as native_kernels
from dougong.cpu.native import NotBuilt
from dougong.cpu.native_library import get_library
from dougong.cpu.platform import NATIVE_LIBRARY, CpuPlatform
from dougong.ops import (
    CustomOp,
    Embedding,
    FusedAddRMSNorm,
    GateUpAct,
    GreedySample,
    Linear,
    LMHead,
    QKVNormRope,
    RMSNorm,
    RotaryEmbedding,
)
from tests.support.cpu_ops import OURS, bound, unmet

DTYPES = (torch.float32, torch.bfloat16)
TOLERANCES = {torch.float32: (1e-5, 1e-5), torch.bfloat16: (2e-2, 2e-2)}


@pytest.fixture(autouse=True)
def _needs_the_library() -> None:
    library = get_library()
    assert not isinstance(library, NotBuilt), library.reason


def both(op: Any, dtype: torch.dtype) -> tuple[Any, Any]:
    torch.manual_seed(0)
    for parameter in op.parameters():
        parameter.data.normal_()
    native = copy.deepcopy(op)
    names = bound(native)[op.key]
    assert list(names) != ["native"], names
    return native, op.forward_native


def check(native: Any, plain: Any, dtype: torch.dtype, *args: torch.Tensor | None) -> None:
    got = native(*(arg if arg is None else arg.clone() for arg in args))
    expected = plain(*args)
    rtol, atol = TOLERANCES[dtype]
    pairs = [(got, expected)] if isinstance(got, torch.Tensor) else zip(got, expected, strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol)


OPS: dict[str, tuple[Callable[[torch.dtype], CustomOp], tuple[tuple[int, ...], ...]]] = {
    "linear": (lambda dtype: Linear(48, 33, False, dtype), ((5, 48),)),
    "linear with bias": (lambda dtype: Linear(48, 33, True, dtype), ((5, 48),)),
    "gate_up_act": (lambda dtype: GateUpAct(48, 40, "silu", False, dtype), ((5, 48),)),
    "gate_up_act with bias": (
        lambda dtype: GateUpAct(48, 40, "gelu_pytorch_tanh", True, dtype),
        ((5, 48),),
    ),
    "rms_norm": (lambda dtype: RMSNorm(40, 1e-5, dtype), ((5, 40),)),
    "rms_norm of heads": (lambda dtype: RMSNorm(16, 1e-5, dtype), ((5, 3, 16),)),
    "fused_add_rms_norm": (lambda dtype: FusedAddRMSNorm(40, 1e-5, dtype), ((5, 40), (5, 40))),
    "lm_head": (lambda dtype: LMHead(70, 48, dtype), ((5, 48),)),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPS)
def test_a_native_op_means_what_the_plain_one_means(name: str, dtype: torch.dtype) -> None:
    make, shapes = OPS[name]
    native, plain = both(make(dtype), dtype)
    generator = torch.Generator().manual_seed(1)
    args = [(torch.randn(shape, generator=generator) * 0.3).to(dtype) for shape in shapes]
    check(native, plain, dtype, *args)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_fused_norm_takes_no_residual(dtype: torch.dtype) -> None:
    native, plain = both(FusedAddRMSNorm(40, 1e-5, dtype), dtype)
    check(native, plain, dtype, torch.randn(3, 40).to(dtype), None)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rotation_takes_slices_of_a_wider_tensor(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    op = RotaryEmbedding(16, 16, torch.randn(32, 16))
    native, plain = both(op, dtype)
    qkv = torch.randn(4, 8, 16).to(dtype)
    positions = torch.tensor([3, 0, 31, 9])
    expected = plain(positions, qkv[:, :4], qkv[:, 4:6])
    wide = qkv.clone()
    got = native(positions, wide[:, :4], wide[:, 4:6])
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)
    assert torch.equal(wide[:, 6:], qkv[:, 6:])


def test_greedy_sampling_takes_the_lowest_of_equal_ids() -> None:
    native, plain = both(GreedySample(), torch.float32)
    logits = torch.randn(7, 301)
    logits[2, 5] = logits[2, 250] = 9.0
    assert torch.equal(native(logits), plain(logits))
    assert native(logits)[2] == 5


def test_half_precision_and_a_missing_library_are_conditions() -> None:
    op = Linear(16, 16, False, torch.float16)
    assert "float16; takes bfloat16, float32" in unmet(op, dtype="float16")
    absent = {"loaded": frozenset(), "missing": {NATIVE_LIBRARY: "no C++ compiler was found"}}
    assert "no C++ compiler" in unmet(op, **absent)


NO_ROWS: dict[str, tuple[Callable[[], CustomOp], tuple[tuple[int, ...], ...]]] = {
    **{name: (partial(make, torch.float32), shapes) for name, (make, shapes) in OPS.items()},
    "rotary_embedding": (
        lambda: RotaryEmbedding(16, 16, torch.randn(4, 16)),
        ((0,), (0, 4, 16), (0, 2, 16)),
    ),
    "embedding": (lambda: Embedding(8, 16, torch.float32), ((0,),)),
    "greedy_sample": (GreedySample, ((5, 40),)),
}


@pytest.mark.parametrize("name", NO_ROWS)
def test_every_kernel_takes_no_rows(name: str) -> None:
    make, shapes = NO_ROWS[name]
    op = make()
    bound(op)
    assert op.implementation.startswith("cpu/")
    ids = torch.empty(0, dtype=torch.int64)
    args = [torch.empty(0, *shape[1:]) if len(shape) > 1 else ids for shape in shapes]
    result = op(*args)
    for tensor in result if isinstance(result, tuple) else (result,):
        assert len(tensor) == 0


def test_no_kernel_is_forgotten_among_those_without_rows() -> None:
    assert {make().key for make, _ in NO_ROWS.values()} == OURS.keys()


@pytest.mark.parametrize("name", [*OPS, "greedy_sample", "rotary_embedding"])
def test_a_tensor_of_another_dtype_is_refused_and_not_read(name: str) -> None:
    make, shapes = NO_ROWS[name]
    op = make()
    bound(op)
    args = [torch.zeros(2, *shape[1:], dtype=torch.bfloat16) for shape in shapes]
    if name == "rotary_embedding":
        args[0], args[2] = torch.zeros(2, dtype=torch.int64), args[2].float()
    with pytest.raises(TypeError, match=r"made for tensors of torch.\w+ and was given torch"):
        op(*args)


def test_the_residual_is_held_to_the_dtype_too() -> None:
    op = FusedAddRMSNorm(16, 1e-5, torch.float32)
    bound(op)
    with pytest.raises(TypeError, match=r"was given torch\.bfloat16"):
        op(torch.zeros(2, 16), torch.zeros(2, 16, dtype=torch.bfloat16))


@pytest.mark.parametrize("name", OPS)
def test_a_weight_of_another_format_is_a_condition_of_its_place(name: str) -> None:
    make = OPS[name][0]
    assert unmet(make(torch.float16)) == "weight_format float16; takes bfloat16 or float32"
    assert unmet(make(torch.bfloat16)) == ""


def test_rotation_follows_calls_that_differ() -> None:
    torch.manual_seed(0)
    native, plain = both(RotaryEmbedding(16, 16, torch.randn(32, 16)), torch.float32)
    positions = torch.tensor([3, 0])
    for heads, kv_heads, dtype in ((4, 2, torch.float32), (6, 1, torch.float32), (4, 2, DTYPES[1])):
        q, k = torch.randn(2, heads, 16).to(dtype), torch.randn(2, kv_heads, 16).to(dtype)
        check(native, plain, dtype, positions, q, k)


def test_a_slots_rotation_is_bound_once(monkeypatch: pytest.MonkeyPatch) -> None:
    slot = QKVNormRope(4, 2, 16, 16, torch.randn(32, 16), torch.float32)
    bound(slot)
    assert slot.rotary.implementation == "cpu/rotary_embedding"
    expected = slot(torch.ones(3, 128), torch.tensor([0, 1, 2]))
    monkeypatch.setattr(native_kernels, "bind_rope", None)
    for one, other in zip(slot(torch.ones(3, 128), torch.tensor([0, 1, 2])), expected, strict=True):
        assert torch.equal(one, other)


def test_what_a_kernel_overwrites_is_declared() -> None:
    terms = {mark.key: mark.details for _, mark in marked_objects([vars(kernels)])}
    assert {key: one.mutates for key, one in terms.items() if one.mutates} == {
        "fused_add_rms_norm": ("x", "residual"),
        "rotary_embedding": ("q", "k"),
    }


def test_the_platform_reports_its_library_as_loaded() -> None:
    report = CpuPlatform().import_kernels()
    assert [name.split()[0] for name in report.loaded] == [NATIVE_LIBRARY]
