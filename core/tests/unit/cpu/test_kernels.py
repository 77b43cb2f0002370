"""Every native op against the plain-torch meaning of the same op, in both dtypes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from dougong.contracts.registration import marked_objects
from dougong.cpu import kernels
from dougong.cpu.native import NotBuilt
from dougong.cpu.native_library import get_library
from dougong.cpu.platform import NATIVE_LIBRARY, CpuPlatform
from dougong.ops import (
    FusedAddRMSNorm,
    GateUpAct,
    GreedySample,
    Linear,
    LMHead,
    RMSNorm,
    RotaryEmbedding,
)
from tests.support.cpu_ops import bound, unmet

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


OPS: dict[str, tuple[Callable[[torch.dtype], nn.Module], tuple[tuple[int, ...], ...]]] = {
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


def test_what_a_kernel_overwrites_is_declared() -> None:
    terms = {mark.key: mark.details for _, mark in marked_objects([vars(kernels)])}
    assert {key: one.mutates for key, one in terms.items() if one.mutates} == {
        "fused_add_rms_norm": ("x", "residual"),
        "rotary_embedding": ("q", "k"),
    }


def test_the_platform_reports_its_library_as_loaded() -> None:
    report = CpuPlatform().import_kernels()
    assert [name.split()[0] for name in report.loaded] == [NATIVE_LIBRARY]
