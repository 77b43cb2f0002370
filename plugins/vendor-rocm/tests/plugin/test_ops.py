"""AITER's kernels against the meaning of their ops, by references that keep AITER's limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from dougong.ops import FusedAddRMSNorm, GeluAndMul, MoEExperts, MoERoute, RMSNorm, SiluAndMul
from dougong_conformance.ladder.stand_in import StandIn

from dougong_rocm import kernels_aiter
from dougong_rocm.hooks import AiterRotaryEmbedding, tables_of
from dougong_rocm.quantization import AiterInt8Linear
from tests.references.limits import Refused

HALF = torch.float16


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = HALF) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype)


def assert_near(found: torch.Tensor, meant: torch.Tensor) -> None:
    """Some roundings of a half apart."""
    torch.testing.assert_close(found, meant, rtol=4e-3, atol=4e-3)


def norm_of(kind: Callable[..., Any], size: int = 64) -> Any:
    op = kind(size, 1e-5, HALF)
    op.weight.data.copy_(drawn(size, seed=9))
    return op


@pytest.mark.parametrize("shape", [(5, 64), (5, 3, 64)])
def test_rms_norm(aiter: StandIn, shape: tuple[int, ...]) -> None:
    op, x = norm_of(RMSNorm), drawn(*shape)
    found = kernels_aiter.rms_norm(x, op.weight, op.eps)
    assert_near(found, op.forward_native(x))
    assert aiter.calls["aiter::rms_norm"] == 1


def test_rms_norm_of_heads_that_are_slices(aiter: StandIn) -> None:
    op, qkv = norm_of(RMSNorm), drawn(5, 6, 64)
    q = qkv[:, 1:4]
    found = kernels_aiter.rms_norm(q, op.weight, op.eps)
    assert_near(found, op.forward_native(q))


def test_a_norm_of_three_axes_given_as_it_is_would_be_refused(aiter: StandIn) -> None:
    with pytest.raises(Refused, match="walks over rows"):
        torch.ops.aiter.rms_norm(drawn(5, 3, 64), drawn(64), 1e-5)


def test_add_rms_norm(aiter: StandIn) -> None:
    op, x, residual = norm_of(FusedAddRMSNorm), drawn(5, 64), drawn(5, 64, seed=1)
    kept = residual.clone()
    normed, total = kernels_aiter.add_rms_norm(x, residual, op.weight, op.eps)
    meant = op.forward_native(x, kept)
    assert_near(normed, meant[0])
    torch.testing.assert_close(total, meant[1], rtol=0, atol=0)
    assert torch.equal(residual, kept)
    first, same = kernels_aiter.add_rms_norm(x, None, op.weight, op.eps)
    assert same is x
    assert_near(first, op.norm.forward_native(x))


@pytest.mark.parametrize("half", [32, 20])
def test_gated_activations(aiter: StandIn, half: int) -> None:
    """Rows that are no whole vectors are computed by torch: AITER would write past their end."""
    x = drawn(5, 2 * half + 3)[:, : 2 * half]
    pairs = (
        (kernels_aiter.silu_and_mul(x), SiluAndMul()),
        (kernels_aiter.gelu_and_mul(x, "none"), GeluAndMul("none")),
        (kernels_aiter.gelu_tanh_and_mul(x, "tanh"), GeluAndMul("tanh")),
    )
    for found, op in pairs:
        assert_near(found, op.forward_native(x))
    assert bool(aiter.calls) is (half % 8 == 0)


@pytest.mark.parametrize("is_neox", [True, False])
@pytest.mark.parametrize("rotary_dim", [64, 32])
def test_rotary_embedding(aiter: StandIn, is_neox: bool, rotary_dim: int) -> None:
    angles = torch.outer(torch.arange(32.0), 1 / 100 ** torch.linspace(0, 1, rotary_dim // 2))
    op = AiterRotaryEmbedding(64, rotary_dim, torch.cat((angles.cos(), angles.sin()), -1), is_neox)
    op.post_load()
    qkv, positions = drawn(5, 8, 64), torch.tensor([3, 31, 0, 7, 7])
    q, k = qkv[:, :4], qkv[:, 4:6]
    meant = op.forward_native(positions, q.clone(), k.clone())
    found = op.forward_oot(positions, q, k)
    for ours, theirs, given in zip(found, meant, (q, k), strict=True):
        assert_near(ours, theirs)
        assert ours.data_ptr() == given.data_ptr()


def test_layers_share_the_tables_of_one_cache() -> None:
    cache = torch.zeros(4, 8)
    tables = tables_of(cache)
    assert tables_of(cache) is tables
    assert tables_of(cache.clone()) is not tables


@pytest.mark.parametrize("renormalize", [True, False])
def test_moe_route(aiter: StandIn, renormalize: bool) -> None:
    op, logits = MoERoute(8, 2, renormalize), drawn(6, 8)
    logits[3] = 0.5
    expert_ids, shares = kernels_aiter.moe_route(logits, 2, renormalize)
    meant_ids, meant_shares = op.forward_native(logits)
    assert torch.equal(expert_ids, meant_ids)
    torch.testing.assert_close(shares, meant_shares)


def test_moe_experts_with_weights_in_tiles(aiter: StandIn) -> None:
    op = MoEExperts(4, 128, 128, "silu", HALF)
    op.gate_up_weight.data.copy_(drawn(4, 256, 128) / 12)
    op.down_weight.data.copy_(drawn(4, 128, 128, seed=1) / 12)
    x, ids = drawn(3, 128), torch.tensor([[3, 0], [0, 2], [2, 3]])
    shares = torch.tensor([[0.7, 0.3], [0.6, 0.4], [0.5, 0.25]])
    meant = op.forward_native(x, ids, shares)
    op.assigned = ("rocm/aiter_fused_moe",)
    kernel = kernels_aiter.FusedExperts(op)
    assert op.gate_up_weight.numel() == 0
    assert_near(kernel(x, ids, shares), meant)


def test_a_linear_of_eight_bits(aiter: StandIn) -> None:
    layer, method = torch.nn.Module(), AiterInt8Linear()
    method.create_weights(layer, 64, 32, HALF)
    weight = drawn(32, 64, dtype=torch.float32)
    scale = weight.abs().amax(dim=1, keepdim=True) / 127
    layer.get_parameter("weight").data.copy_((weight / scale).round().to(torch.int8))
    layer.get_parameter("weight_scale").data.copy_(scale)
    method.post_load(layer)
    x, bias = drawn(5, 64), drawn(32, seed=3)
    found = method.apply(layer, x, bias)
    torch.testing.assert_close(
        found.float(), x.float() @ weight.t() + bias.float(), rtol=0.02, atol=0.2
    )
