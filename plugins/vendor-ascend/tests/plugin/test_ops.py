"""What this wheel registers means what the core's ops mean, through the vendor's ops."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from dougong.contracts import Mark, RegistrationKind
from dougong.contracts.registration import marks_of
from dougong.ops import (
    CustomOp,
    FusedAddRMSNorm,
    GeluAndMul,
    Linear,
    MoEExperts,
    MoERoute,
    Quantize,
    RMSNorm,
    RotaryEmbedding,
    SiluAndMul,
    TopKTopP,
)
from dougong_conformance.ladder.stand_in import StandIn

from dougong_ascend import experts, hooks, kernels, linear, rotary

pytestmark = pytest.mark.usefixtures("npu_ops")

MODULES = (hooks, *hooks.dougong_register_ops())
MARKS = {
    mark.name: (target, mark)
    for module in MODULES
    for target in vars(module).values()
    if getattr(target, "__module__", "") == module.__name__
    for mark in marks_of(target)
}
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
ALL, HALVES = tuple(TOLERANCE), (torch.float16, torch.bfloat16)

Case = tuple[CustomOp, tuple[Any, ...]]


def drawn(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def filled(op: CustomOp) -> CustomOp:
    for seed, parameter in enumerate(op.parameters()):
        if parameter.is_floating_point():
            parameter.data = drawn(*parameter.shape, dtype=parameter.dtype, seed=seed) * 0.2
    return op


def norm_case(dtype: torch.dtype) -> Case:
    return filled(RMSNorm(48, 1e-5, dtype)), (drawn(5, 3, 48, dtype=dtype),)


def add_norm_case(dtype: torch.dtype) -> Case:
    op = filled(FusedAddRMSNorm(48, 1e-5, dtype))
    return op, (drawn(5, 48, dtype=dtype), drawn(5, 48, dtype=dtype, seed=1))


def first_add_norm_case(dtype: torch.dtype) -> Case:
    op, (x, _) = add_norm_case(dtype)
    return op, (x, None)


def rope_case(
    dtype: torch.dtype, *, head_dim: int = 64, rotary_dim: int = 64, is_neox: bool = True
) -> Case:
    angles = torch.arange(40).unsqueeze(1) * 0.9 ** torch.arange(rotary_dim // 2)
    table = torch.cat((angles.cos(), angles.sin()), dim=-1)
    op = RotaryEmbedding(head_dim, rotary_dim, table, is_neox, 4, 2)
    joined = drawn(5, 8, head_dim, dtype=dtype)
    return op, (torch.tensor([0, 39, 7, 7, 21]), joined[:, :4], joined[:, 4:6])


def quantize_case(dtype: torch.dtype) -> Case:
    x = drawn(5, 48, dtype=dtype)
    x[2] = 0
    return Quantize(48, "int8_token"), (x,)


def experts_case(dtype: torch.dtype) -> Case:
    chosen = torch.tensor([[3, 0], [0, 2], [2, 3], [3, 2], [0, 3]])
    shares = torch.tensor([[0.7, 0.3], [0.6, 0.4], [0.5, 0.25], [0.9, 0.1], [0.5, 0.5]])
    op = filled(MoEExperts(4, 32, 16, "silu", dtype))
    return op, (drawn(5, 32, dtype=dtype), chosen, shares)


def top_case(dtype: torch.dtype) -> Case:
    k, p = torch.tensor([4, 40, 3, 9, 1]), torch.tensor([0.9, 0.5, 1.0, 0.999, 1.0])
    return TopKTopP(), (drawn(5, 40, dtype=dtype), k, p)


CASES: dict[str, list[tuple[Callable[..., Case], tuple[torch.dtype, ...], dict[str, Any]]]] = {
    "ascend/rms_norm": [(norm_case, ALL, {})],
    "ascend/add_rms_norm": [(add_norm_case, ALL, {}), (first_add_norm_case, ALL, {})],
    "ascend/swiglu": [
        (lambda dtype, width: (SiluAndMul(), (drawn(5, width, dtype=dtype),)), ALL, {"width": 64}),
        (lambda dtype, width: (SiluAndMul(), (drawn(5, width, dtype=dtype),)), ALL, {"width": 40}),
    ],
    "ascend/geglu": [
        (lambda dtype, how: (GeluAndMul(how), (drawn(5, 64, dtype=dtype),)), ALL, {"how": how})
        for how in ("tanh", "none")
    ],
    "ascend/mrope": [
        (rope_case, HALVES, {}),
        (rope_case, HALVES, {"head_dim": 96, "rotary_dim": 32}),
    ],
    "ascend/rotary_mul": [
        (rope_case, ALL, {}),
        (rope_case, ALL, {"is_neox": False}),
        (rope_case, ALL, {"head_dim": 24, "rotary_dim": 10}),
    ],
    "ascend/rotary_310p_64": [
        (rope_case, (torch.float16,), {}),
        (rope_case, (torch.float16,), {"is_neox": False}),
    ],
    "ascend/rotary_310p_128": [(rope_case, (torch.float16,), {"head_dim": 128, "rotary_dim": 128})],
    "ascend/dynamic_quant": [(quantize_case, HALVES, {})],
    "ascend/top_k_top_p": [(top_case, (torch.float32,), {})],
    "ascend/nz_linear": [
        (
            lambda dtype: (filled(Linear(48, 32, True, dtype)), (drawn(5, 48, dtype=dtype),)),
            HALVES,
            {},
        )
    ],
    "ascend/nz_linear_310p": [
        (
            lambda dtype: (filled(Linear(48, 32, False, dtype)), (drawn(5, 48, dtype=dtype),)),
            (torch.float16,),
            {},
        )
    ],
    "ascend/gating_top_k_softmax": [
        (
            lambda dtype, again: (MoERoute(8, 3, again), (drawn(5, 8, dtype=dtype),)),
            (torch.float32,),
            {"again": again},
        )
        for again in (True, False)
    ],
    "ascend/grouped_matmul": [(experts_case, (torch.bfloat16,), {})],
}


def cases() -> Iterator[Any]:
    for name, variants in CASES.items():
        for number, (make, dtypes, options) in enumerate(variants):
            for dtype in dtypes:
                yield pytest.param(
                    name, make, dtype, options, id=f"{name}-{number}-{str(dtype)[6:]}"
                )


def run(name: str, op: CustomOp, args: tuple[Any, ...]) -> Any:
    """As it is bound: a class with the op's weights, or a kernel."""
    target, mark = MARKS[name]
    if mark.kind is RegistrationKind.OP_CLASS:
        made = copy.copy(op)
        made.__class__ = target
        return made.forward_oot(*args)
    if isinstance(target, type):
        return target(op)(*args)
    return target(*args, *op.kernel_args())


def assert_alike(found: Any, expected: Any, dtype: torch.dtype) -> None:
    found, expected = (one if isinstance(one, tuple) else (one,) for one in (found, expected))
    limit = TOLERANCE[dtype]
    for ours, meant in zip(found, expected, strict=True):
        if meant is None:
            assert ours is None
            continue
        assert ours.dtype == meant.dtype and ours.shape == meant.shape
        if ours.dtype == torch.int8:  # half a unit may be rounded either way
            ours, meant, limit = ours.int(), meant.int(), 1
        torch.testing.assert_close(ours, meant, rtol=limit, atol=limit)


def test_every_registration_has_a_case() -> None:
    assert set(CASES) == set(MARKS)


@pytest.mark.parametrize(("name", "make", "dtype", "options"), list(cases()))
def test_it_means_what_its_op_means(
    name: str, make: Callable[..., Case], dtype: torch.dtype, options: dict[str, Any]
) -> None:
    op, args = make(dtype, **options)
    before = copy.deepcopy(args)
    expected = op.forward_native(*copy.deepcopy(args))
    found = run(name, op, args)
    assert_alike(found, expected, dtype)
    for given, kept in zip(args, before, strict=True):
        assert given is None or torch.equal(given, kept), "an argument was overwritten"


@pytest.mark.parametrize("name", CASES)
def test_it_calls_the_vendor(name: str, npu_ops: StandIn) -> None:
    make, dtypes, options = CASES[name][0]
    npu_ops.calls.clear()
    run(name, *make(dtypes[0], **options))
    assert npu_ops.calls.total() > 0


def test_arguments_swapped_in_a_call_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = rotary.RotaryMul._turn
    monkeypatch.setattr(
        rotary.RotaryMul, "_turn", lambda self, heads, cos, sin: right(self, heads, sin, cos)
    )
    op, args = rope_case(torch.float32)
    expected = op.forward_native(*args)
    with pytest.raises(AssertionError):
        assert_alike(run("ascend/rotary_mul", op, args), expected, torch.float32)


@pytest.mark.parametrize("name", ["ascend/nz_linear", "ascend/grouped_matmul"])
@pytest.mark.parametrize("is_alone", [True, False])
def test_a_weight_is_kept_once_where_nobody_else_reads_it(name: str, is_alone: bool) -> None:
    make, dtypes, options = CASES[name][0]
    op, args = make(dtypes[0], **options)
    op.assigned = (name,) if is_alone else (name, "native")
    expected = op.forward_native(*args)
    found = run(name, op, args)
    assert_alike(found, expected, dtypes[0])
    sizes = [parameter.numel() for key, parameter in op.named_parameters() if "weight" in key]
    assert all(size == 0 for size in sizes) == is_alone


def test_a_cut_to_more_tokens_than_the_op_takes_is_one_to_1024() -> None:
    logits = drawn(1, 2000, dtype=torch.float32)
    kept = kernels.top_k_top_p(logits, torch.tensor([2000]), torch.tensor([1.0]))
    assert int(kept.isfinite().sum()) == kernels.MOST_TOP_K


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("ascend/top_k_top_p", "DOUGONG_ASCEND_FAST_TOP_K"),
        ("ascend/gating_top_k_softmax", "DOUGONG_ASCEND_FAST_ROUTING"),
        ("ascend/nz_linear", "DOUGONG_ASCEND_NZ_WEIGHTS"),
    ],
)
def test_what_differs_from_the_core_is_off_until_it_is_asked_for(name: str, variable: str) -> None:
    mark: Mark = MARKS[name][1]
    assert (variable, "1") in mark.details.when.env


def test_modules_are_all_that_hold_marks() -> None:
    assert (hooks, kernels, rotary, linear, experts) == MODULES
