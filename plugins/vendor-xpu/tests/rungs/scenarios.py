"""The plugin's work on a device that is not here: every op and backend that calls vllm-xpu-kernels.

Each is a function of a device. Where it is fake, tensors have no memory and nothing is computed:
what counts is which calls are made, with which tensors, and what the host waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from dougong.contracts import CommonAttentionMetadata
from dougong.ops import LayerNorm, MoEExperts, QKVNormRope, RotaryEmbedding
from dougong_conformance.kit.oracle.attention import AttentionTerms
from dougong_conformance.kit.paged import Geometry
from torch import nn

from dougong_xpu import kernels, moe
from dougong_xpu.attention import XpuFlashBackend
from dougong_xpu.hooks import XpuRMSNorm, XpuSiluAndMul
from dougong_xpu.quantization import Fp8Linear
from tests.attention_layer import Layer

DTYPE = torch.bfloat16
TOKENS, HIDDEN, HEADS, KV_HEADS, DIM, BLOCK = 6, 256, 4, 2, 64, 64


def rows(device: torch.device, *shape: int, dtype: torch.dtype = DTYPE) -> torch.Tensor:
    """Of no value."""
    return torch.empty(shape, dtype=dtype, device=device)


def joined(device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys, values: parts of one projection's output."""
    parts = (HEADS, KV_HEADS, KV_HEADS)
    wide = rows(device, TOKENS, sum(parts) * DIM).view(TOKENS, sum(parts), DIM)
    q, k, v = wide.split_with_sizes(parts, dim=1)
    return q, k, v


def table(device: torch.device) -> torch.Tensor:
    """Cosines and sines as the core keeps them."""
    return rows(device, 32, DIM, dtype=torch.float32)


def positions(device: torch.device) -> torch.Tensor:
    """Of each row."""
    return torch.empty(TOKENS, dtype=torch.int64, device=device)


def norms(device: torch.device) -> None:
    with device:
        norm, heads = (XpuRMSNorm(width, 1e-6, DTYPE) for width in (HIDDEN, DIM))
        layer = LayerNorm(HIDDEN, 1e-6, DTYPE)
    x = norm.forward_oot(rows(device, TOKENS, HIDDEN))
    assert x.shape == (TOKENS, HIDDEN)
    assert heads.forward_oot(joined(device)[0]).shape == (TOKENS, HEADS, DIM)
    for residual in (None, rows(device, TOKENS, HIDDEN)):
        out, total = kernels.fused_add_rms_norm(x, residual, norm.weight, 1e-6)
        assert out.shape == total.shape == x.shape
    assert kernels.layer_norm(x, *layer.kernel_args()).shape == x.shape


def activations(device: torch.device) -> None:
    x = rows(device, TOKENS, 2 * HIDDEN)
    assert XpuSiluAndMul().forward_oot(x).shape == (TOKENS, HIDDEN)
    for approximate in ("none", "tanh"):
        assert kernels.gelu_and_mul(x, approximate).shape == (TOKENS, HIDDEN)
    # a part of a wider tensor: rows lie apart
    assert XpuSiluAndMul().forward_oot(x[:, :HIDDEN]).shape == (TOKENS, HIDDEN // 2)


def rotation(device: torch.device) -> None:
    op = RotaryEmbedding(DIM, DIM, table(device), num_heads=HEADS, num_kv_heads=KV_HEADS)
    q, k, _ = joined(device)
    rotated = kernels.XpuRotaryEmbedding(op)(positions(device), q, k)
    assert [one.shape for one in rotated] == [q.shape, k.shape]


def norm_and_rotation(device: torch.device) -> None:
    with device:
        op = QKVNormRope(HEADS, KV_HEADS, DIM, DIM, table(device), DTYPE, norm_eps=1e-6)
    qkv = rows(device, TOKENS, (HEADS + 2 * KV_HEADS) * DIM)
    parts = kernels.XpuQKNormRope(op)(qkv, positions(device))
    assert [one.shape[1] for one in parts] == [HEADS, KV_HEADS, KV_HEADS]


def experts(device: torch.device) -> None:
    with device:
        op = MoEExperts(8, HIDDEN, 64, "silu", DTYPE)
    x = rows(device, TOKENS, HIDDEN)
    logits = rows(device, TOKENS, 8, dtype=torch.float32)
    expert_ids, shares = moe.topk_softmax(logits, 2, True)
    assert expert_ids.dtype is torch.int64
    assert moe.XpuGroupedExperts(op)(x, expert_ids, shares).shape == x.shape


def product_of_8_bits(device: torch.device) -> None:
    method, layer = Fp8Linear(), nn.Module()
    with device:
        method.create_weights(layer, HIDDEN, 2 * HIDDEN, DTYPE)
    product = method.apply(layer, rows(device, TOKENS, HIDDEN), rows(device, 2 * HIDDEN))
    assert product.shape == (TOKENS, 2 * HIDDEN)


def attention(device: torch.device) -> None:
    """A step that prefills and decodes, then one that decodes, with and without a window."""
    for window in (None, 100):
        for lens in ((3, 1, 2), (1,) * TOKENS):
            layer, q, k, v, common = attention_step(device, lens, window)
            assert layer.attend(common, q, k, v).shape == q.shape


def attention_step(
    device: torch.device, query_lens: tuple[int, ...] = (3, 1, 2), window: int | None = None
) -> tuple[Layer, torch.Tensor, torch.Tensor, torch.Tensor, CommonAttentionMetadata]:
    """A layer of the plugin's backend, queries, keys and values of a step, and its lengths."""
    geometry = Geometry(
        num_heads=HEADS,
        num_kv_heads=KV_HEADS,
        head_dim=DIM,
        block_size=BLOCK,
        dtype=DTYPE,
        kv_dtype=DTYPE,
    )
    terms = AttentionTerms(scale=DIM**-0.5, sliding_window=window)
    layer = Layer(XpuFlashBackend(), geometry, terms, 16, device)
    return layer, *joined(device), layer.common(_on_the_host(query_lens))


def _on_the_host(query_lens: tuple[int, ...]) -> dict[str, Any]:
    """Lengths and places, as `PagedBatch.step` has them."""
    count = len(query_lens)
    return {
        "num_reqs": count,
        "num_tokens": sum(query_lens),
        "max_query_len": max(query_lens),
        "max_seq_len": 90,
        "cu_seqlens_q": torch.zeros(count + 1, dtype=torch.int32),
        "seq_lens": torch.zeros(count, dtype=torch.int32),
        "block_table": torch.zeros((count, 4), dtype=torch.int32),
        "slots": torch.zeros(sum(query_lens), dtype=torch.int64),
    }


SCENARIOS: Mapping[str, Callable[[torch.device], None]] = {
    "norms": norms,
    "activations": activations,
    "rotation": rotation,
    "norm and rotation": norm_and_rotation,
    "experts": experts,
    "product of 8 bits": product_of_8_bits,
    "attention": attention,
}
