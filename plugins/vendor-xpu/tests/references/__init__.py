"""Ops of ``vllm-xpu-kernels`` in plain torch, with the limits that its sources state.

What a kernel refuses raises here as it does there, and what it does in silence is done here as
well: a cap on scores that is not applied, rows of negative slots that are left out, products
rounded to the storage dtype. They use only operators that the simulated device has, and never wait
for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dougong.contracts import KernelReport
from dougong_conformance.ladder.golden import Golden, read_golden
from dougong_conformance.ladder.stand_in import install as install_references

from tests.references import activations, flash, moe, norms, quantized, rotary

GOLDEN_PATH = Path(__file__).parents[1] / "golden" / "vllm_xpu_kernels-0.1.16.2.schemas.json"

REFERENCES: Mapping[str, Callable[..., Any]] = {
    "_C::rms_norm": norms.rms_norm,
    "_C::fused_add_rms_norm": norms.fused_add_rms_norm,
    "_C::layer_norm": norms.layer_norm,
    "_C::rotary_embedding": rotary.rotary_embedding,
    "_C::fused_qk_norm_rope": rotary.fused_qk_norm_rope,
    "_C::silu_and_mul": activations.silu_and_mul,
    "_C::gelu_and_mul": activations.gelu_and_mul,
    "_C::gelu_tanh_and_mul": activations.gelu_tanh_and_mul,
    "_C_cache_ops::reshape_and_cache_flash": flash.reshape_and_cache_flash,
    "_vllm_fa2_C::varlen_fwd": flash.varlen_fwd,
    "_moe_C::topk_softmax": moe.topk_softmax,
    "_moe_C::remap_hidden_states": moe.remap_hidden_states,
    "_moe_C::moe_gather": moe.moe_gather,
    "_xpu_C::cutlass_grouped_gemm_interface": moe.cutlass_grouped_gemm_interface,
    "_xpu_C::fp8_gemm_w8a16": quantized.fp8_gemm_w8a16,
}


def golden() -> Golden:
    """The schemas that the published wheel registers."""
    return read_golden(GOLDEN_PATH)


def install() -> KernelReport:
    """Register every reference under its published schema, for as long as the process lives."""
    install_references(golden(), REFERENCES)
    return report()


def report() -> KernelReport:
    """What the library reports where it is loaded: for a process that has registered references."""
    return KernelReport(loaded=("vllm-xpu-kernels 0.1.16.2",))
