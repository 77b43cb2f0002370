"""Steps and ops on a fake ``cuda`` device; who answers for shapes is the caller's affair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from dougong.contracts import AttentionRequest, CommonAttentionMetadata, KVCacheSpec
from dougong.ops import MoEExperts

from dougong_rocm import kernels_aiter
from dougong_rocm.attention_aiter import AiterStep
from dougong_rocm.hooks import AiterRotaryEmbedding
from dougong_rocm.quantization import AiterInt8Linear

HALF = torch.bfloat16


def empty(*shape: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="cuda")


def common(block_size: int) -> CommonAttentionMetadata:
    """Two sequences, one in prefill."""
    ints = torch.int32
    return CommonAttentionMetadata(
        num_reqs=2,
        num_tokens=5,
        max_query_len=4,
        max_seq_len=9,
        cu_seqlens_q=empty(3, dtype=ints),
        cu_seqlens_q_cpu=torch.empty(3, dtype=ints),
        seq_lens=empty(2, dtype=ints),
        seq_lens_cpu=torch.empty(2, dtype=ints),
        block_table=empty(2, -(-9 // block_size), dtype=ints),
        slot_mapping=empty(5, dtype=torch.int64),
    )


def run_attention(backend: Any, block_size: int, change: Callable[[Any], None]) -> None:
    request = AttentionRequest(
        num_heads=8, num_kv_heads=2, head_dim=64, dtype="bfloat16", kv_dtype="bfloat16"
    )
    spec = KVCacheSpec(num_kv_heads=2, head_dim=64, dtype="bfloat16", block_size=block_size)
    layout = backend.kv_layout(spec)
    caches = [empty(*buffer.shape(4)) for buffer in layout.buffers]
    told = common(block_size)
    change(told)
    step: AiterStep = backend.make_builder(spec, layout, torch.device("cuda", 0)).build(told)
    impl = backend.make_impl(request, 0.125)
    qkv = empty(5, 12, 64)
    q, k, v = qkv.split_with_sizes((8, 2, 2), dim=1)
    impl.write_kv(k, v, caches, told.slot_mapping)
    impl.forward(q, k, v, caches, step, empty(5, 8, 64))


def keep(step: CommonAttentionMetadata) -> None:
    """As a step is."""


def run_plain_ops() -> None:
    """Every kernel that is a function."""
    x, weight = empty(3, 64), empty(64)
    assert kernels_aiter.rms_norm(x, weight, 1e-5).shape == (3, 64)
    assert kernels_aiter.rms_norm(empty(3, 4, 64), weight, 1e-5).shape == (3, 4, 64)
    normed, total = kernels_aiter.add_rms_norm(x, empty(3, 64), weight, 1e-5)
    assert normed.shape == total.shape == (3, 64)
    assert kernels_aiter.silu_and_mul(x).shape == (3, 32)
    assert kernels_aiter.gelu_and_mul(x, "none").shape == (3, 32)
    assert kernels_aiter.gelu_tanh_and_mul(x, "tanh").shape == (3, 32)
    expert_ids, shares = kernels_aiter.moe_route(empty(3, 8), 2, True)
    assert (expert_ids.dtype, shares.dtype) == (torch.int64, torch.float32)


def run_prepared_ops() -> None:
    """Every kernel that is a class."""
    with torch.device("cuda"):
        experts = MoEExperts(4, 128, 128, "silu", HALF)
        rotary = AiterRotaryEmbedding(64, 64, torch.empty(16, 64))
    kernel = kernels_aiter.FusedExperts(experts)
    ids = empty(3, 2, dtype=torch.int64)
    assert kernel(empty(3, 128), ids, empty(3, 2, dtype=torch.float32)).shape == (3, 128)
    rotary.post_load()
    q, k = rotary.forward_oot(empty(3, dtype=torch.int64), empty(3, 8, 64), empty(3, 2, 64))
    assert (q.shape, k.shape) == ((3, 8, 64), (3, 2, 64))


def run_int8_linear() -> None:
    """Weights of eight bits."""
    layer, method = torch.nn.Module(), AiterInt8Linear()
    with torch.device("cuda"):
        method.create_weights(layer, 64, 32, HALF)
    method.post_load(layer)
    assert method.apply(layer, empty(3, 64), None).shape == (3, 32)
