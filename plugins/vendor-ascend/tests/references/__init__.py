"""What each vendor op that the plugin calls means, in plain torch, with its documented limits.

Read from the vendor's documentation, not from its kernels: right use of an op is proved by them,
numbers of the device are not. They use only operators that the simulated device has too, never wait
for the device, and refuse (`VendorLimitError`) what the documentation does not allow. Where a wrong
call is silent on the device, it is silent here and the numbers are wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from tests.references import (
    activation,
    atb_attention,
    cache,
    experts,
    fused_infer_attention,
    norm,
    quantization,
    rotary,
    sampling,
)

REFERENCES: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "npu::npu_rms_norm": norm.npu_rms_norm,
        "npu::npu_add_rms_norm": norm.npu_add_rms_norm,
        "npu::npu_swiglu": activation.npu_swiglu,
        "npu::npu_geglu": activation.npu_geglu,
        "npu::npu_mrope": rotary.npu_mrope,
        "npu::npu_rotary_mul": rotary.npu_rotary_mul,
        "npu::npu_scatter_pa_kv_cache": cache.npu_scatter_pa_kv_cache,
        "npu::npu_format_cast": cache.npu_format_cast,
        "npu::npu_fused_infer_attention_score": (
            fused_infer_attention.npu_fused_infer_attention_score
        ),
        "npu::npu_dynamic_quant": quantization.npu_dynamic_quant,
        "npu::npu_quant_matmul": quantization.npu_quant_matmul,
        "npu::npu_moe_gating_top_k_softmax": experts.npu_moe_gating_top_k_softmax,
        "npu::npu_moe_init_routing_v2": experts.npu_moe_init_routing_v2,
        "npu::npu_grouped_matmul": experts.npu_grouped_matmul,
        "npu::npu_moe_token_unpermute": experts.npu_moe_token_unpermute,
        "npu::npu_top_k_top_p": sampling.npu_top_k_top_p,
        "atb::_npu_rotary_embedding": rotary.npu_rotary_embedding,
        "atb::_npu_reshape_and_cache": cache.npu_reshape_and_cache,
        "atb::_npu_paged_attention": atb_attention.npu_paged_attention,
        "atb::_npu_paged_attention_splitfuse_v2": atb_attention.npu_paged_attention_splitfuse_v2,
    }
)
"""By the name in the dispatcher, with its overload where it has one."""
