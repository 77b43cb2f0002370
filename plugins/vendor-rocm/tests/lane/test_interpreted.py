"""L5: Triton kernels that this wheel calls, run by Triton's interpreter on the CPU, against the
oracle.

AITER's unified attention, as this wheel calls it, and the portable kernels. AITER's other Triton
kernels are not called; two are run beside. The interpreter's bfloat16 is not to be trusted
(products of matrices are garbage in it), so float32 and float16 are compared.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import pytest
import torch
from dougong.contracts import AttentionBackend, AttentionRequest, KVCacheSpec
from dougong.ops import FusedAddRMSNorm, RMSNorm, RotaryEmbedding, SiluAndMul
from dougong.reference import ReferenceAttentionBackend

from dougong_rocm import kernels_triton, library
from dougong_rocm.attention_aiter import AiterUnifiedBackend
from dougong_rocm.attention_triton import TritonAttentionBackend
from tests.lane.conftest import Imported
from tests.lane.stand_in_rocm import ARCH
from tests.lane.steps import Step, make_step
from tests.shown import shows

pytestmark = [
    pytest.mark.lane,
    # numpy warns where a GPU does not: of rows of a tile that nobody reads
    pytest.mark.filterwarnings("ignore:(divide by zero|invalid value|overflow):RuntimeWarning"),
]


class InterpretedUnified(AiterUnifiedBackend):
    """In float32 too, which the backend does not take on a chip: there the interpreter is exact."""

    limits = replace(
        AiterUnifiedBackend.limits, dtypes=AiterUnifiedBackend.limits.dtypes | {"float32"}
    )


LIMITS = {torch.float32: 3e-6, torch.float16: 2e-3}
"""Largest difference, of values up to one; beyond, relative to the value."""
STEPS = {
    "prefill and decode": ((3, 21), (1, 40), (1, 9)),
    "decode": ((1, 33), (1, 5), (1, 16)),
    "chunk": ((7, 47),),
}
CHANGES: dict[str, dict[str, Any]] = {
    "plain": {},
    "window": {"sliding_window": 6},
    "cap": {"soft_cap": 5.0},
    "one KV head": {"num_kv_heads": 1},
}


def drawn(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def distance(found: torch.Tensor, meant: torch.Tensor) -> float:
    wide = meant.double()
    return float(((found.double() - wide).abs() / wide.abs().clamp(min=1)).max())


def norms(dtype: torch.dtype) -> tuple[RMSNorm, FusedAddRMSNorm]:
    plain, fused = RMSNorm(192, 1e-5, dtype), FusedAddRMSNorm(192, 1e-5, dtype)
    for op in (plain, fused.norm):
        op.weight.data.copy_(drawn(192, dtype=dtype, seed=2))
    return plain, fused


def aiters_norms(dtype: torch.dtype) -> dict[str, float]:
    kernels = importlib.import_module("aiter.ops.triton.rmsnorm")
    plain, fused = norms(dtype)
    x, residual = drawn(6, 192, dtype=dtype), drawn(6, 192, dtype=dtype, seed=1)
    normed, total = torch.empty_like(x), torch.empty_like(x)
    kernels.rmsnorm2d_fwd_with_add(normed, x, residual, total, fused.weight, 1e-5)
    meant = fused.forward_native(x, residual)
    return {
        "rms_norm": distance(kernels.rms_norm(x, plain.weight, 1e-5), plain.forward_native(x)),
        "add_rms_norm": distance(normed, meant[0]),
        "residual": distance(total, meant[1]),
    }


def portable_ops(dtype: torch.dtype) -> dict[str, float]:
    plain, fused = norms(dtype)
    x, residual = drawn(6, 192, dtype=dtype), drawn(6, 192, dtype=dtype, seed=1)
    meant_norm, meant_sum = fused.forward_native(x, residual)
    normed, total = kernels_triton.add_rms_norm(x, residual.clone(), fused.weight, 1e-5)
    angles = torch.outer(torch.arange(16.0), torch.linspace(0.1, 1, 16))
    rotary = RotaryEmbedding(32, 32, torch.cat((angles.cos(), angles.sin()), -1))
    heads, positions = drawn(4, 6, 32, dtype=dtype), torch.tensor([3, 15, 0, 7])
    q, k = heads[:, :4], heads[:, 4:]
    meant_q, meant_k = rotary.forward_native(positions, q.clone(), k.clone())
    turned_q, turned_k = kernels_triton.rotary_embedding(positions, q, k, *rotary.kernel_args())
    return {
        "rms_norm": distance(
            kernels_triton.rms_norm(x, plain.weight, 1e-5), plain.forward_native(x)
        ),
        "add_rms_norm": distance(normed, meant_norm),
        "residual": distance(total, meant_sum),
        "silu_and_mul": distance(kernels_triton.silu_and_mul(x), SiluAndMul().forward_native(x)),
        "rotary_embedding": max(distance(turned_q, meant_q), distance(turned_k, meant_k)),
    }


def attention_distance(
    backend: AttentionBackend, step: Step, request: AttentionRequest, window: int | None = None
) -> float:
    """Of a backend of this wheel, from the reference on the same cache."""
    outputs = []
    for one in (backend, ReferenceAttentionBackend()):
        spec = KVCacheSpec(
            num_kv_heads=request.num_kv_heads,
            head_dim=request.head_dim,
            dtype=request.kv_dtype,
            block_size=step.block_size,
        )
        builder = one.make_builder(spec, one.kv_layout(spec), torch.device("cpu"))
        impl: Any = one.make_impl(request, request.head_dim**-0.5)
        if window is not None and one is backend:
            impl._window = window
        out = torch.zeros_like(step.q)
        impl.forward(step.q, step.k, step.v, step.caches, builder.build(step.common), out)
        outputs.append(out)
    return distance(*outputs)


def request_of(dtype: torch.dtype, **changes: Any) -> AttentionRequest:
    name = str(dtype).removeprefix("torch.")
    fields = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 32, "dtype": name, "kv_dtype": name}
    return AttentionRequest(**{**fields, **changes})


def attention_distances(backend: AttentionBackend, dtype: torch.dtype) -> dict[str, float]:
    found = {}
    for name, lengths in STEPS.items():
        request = request_of(dtype)
        found[name] = attention_distance(backend, make_step(request, lengths, 16), request)
    for name, change in CHANGES.items():
        request = request_of(dtype, **change)
        step = make_step(request, STEPS["prefill and decode"], 16)
        found[name] = attention_distance(backend, step, request)
    return found


def worst_of(found: dict[torch.dtype, dict[str, float]]) -> str:
    """Every difference is within its limit; the largest of each dtype, in words."""
    beyond = [
        f"{name} in {dtype}: {value}"
        for dtype, values in found.items()
        for name, value in values.items()
        if not value <= LIMITS[dtype]
    ]
    assert beyond == []
    return ", ".join(f"{dtype} within {max(one.values()):.1e}" for dtype, one in found.items())


def test_aiters_unified_attention_computes_what_attention_means(aiter: Imported) -> None:
    library.bind([ARCH])
    with shows("L5", "AITER's unified attention, interpreted") as shown:
        found = {dtype: attention_distances(InterpretedUnified(), dtype) for dtype in LIMITS}
        shown.what = (
            "AITER's own Triton kernel of unified attention, as this wheel calls it (prefill, "
            f"decode, chunk, window, cap), agrees with the oracle interpreted: {worst_of(found)}"
        )


def test_the_portable_kernels_compute_what_this_wheel_calls_them_for() -> None:
    with shows("L5", "the portable Triton kernels, interpreted") as shown:
        found = {
            dtype: portable_ops(dtype) | attention_distances(TritonAttentionBackend(), dtype)
            for dtype in LIMITS
        }
        shown.what = (
            "the portable Triton kernels, as this wheel calls them (norms, activation, rotation, "
            f"attention of all kinds of steps), agree with the oracle interpreted: "
            f"{worst_of(found)}"
        )


def test_aiters_triton_norms_beside(aiter: Imported) -> None:
    with shows("beside", "AITER's Triton norms, interpreted") as shown:
        found = {dtype: aiters_norms(dtype) for dtype in LIMITS}
        shown.what = (
            "AITER's Triton norms, which this wheel does not call (it calls the compiled ones), "
            f"agree with the oracle interpreted: {worst_of(found)}"
        )


@pytest.mark.parametrize("dtype", LIMITS)
def test_a_planted_wrong_window_is_seen(aiter: Imported, dtype: torch.dtype) -> None:
    library.bind([ARCH])
    request = request_of(dtype, sliding_window=6)
    step = make_step(request, STEPS["prefill and decode"], 16)
    assert attention_distance(InterpretedUnified(), step, request, 6) > 10 * LIMITS[dtype]
