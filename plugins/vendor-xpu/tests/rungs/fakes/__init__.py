"""What vllm-xpu-kernels' ops do with tensors that have no memory, and what they refuse.

The wheel has no meta kernels, so these are our own: shapes and dtypes as its public C++ source
checks and uses them, its silent ones included. A kernel casts a pointer to the type of its first
tensor, whatever the tensor behind it holds: here that is an error.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tests.rungs.fakes import attention, experts, products, rows

FAKES: Mapping[str, Callable[..., Any]] = {
    "_C::rms_norm": rows.rms_norm,
    "_C::fused_add_rms_norm": rows.fused_add_rms_norm,
    "_C::layer_norm": rows.layer_norm,
    "_C::silu_and_mul": rows.gated,
    "_C::gelu_and_mul": rows.gated,
    "_C::gelu_tanh_and_mul": rows.gated,
    "_C::rotary_embedding": rows.rotary_embedding,
    "_C::fused_qk_norm_rope": rows.fused_qk_norm_rope,
    "_C_cache_ops::reshape_and_cache_flash": attention.reshape_and_cache_flash,
    "_vllm_fa2_C::varlen_fwd": attention.varlen_fwd,
    "_moe_C::topk_softmax": experts.topk_softmax,
    "_moe_C::remap_hidden_states": experts.remap_hidden_states,
    "_moe_C::moe_gather": experts.moe_gather,
    "_xpu_C::cutlass_grouped_gemm_interface": experts.cutlass_grouped_gemm_interface,
    "_xpu_C::fp8_gemm_w8a16": products.fp8_gemm_w8a16,
}


def counted(calls: Counter[str]) -> dict[str, Callable[..., Any]]:
    """`FAKES`, each of which writes down that it was reached."""

    def noting(op: str, fake: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fake)
        def noted(*args: Any, **kwargs: Any) -> Any:
            calls[op] += 1
            return fake(*args, **kwargs)

        return noted

    return {op: noting(op, fake) for op, fake in FAKES.items()}
