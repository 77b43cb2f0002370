"""References of norms, activations and rotation against the meaning of the core's ops."""

from __future__ import annotations

import pytest
import torch
from dougong.ops import FusedAddRMSNorm, GeluAndMul, RMSNorm, RotaryEmbedding, SiluAndMul, TopKTopP

from tests.references.refusals import VendorLimitError

pytestmark = pytest.mark.usefixtures("npu_ops")
_OPS = torch.ops.npu


def _random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _norm(dtype: torch.dtype) -> RMSNorm:
    norm = RMSNorm(32, 1e-5, dtype)
    norm.weight.data.copy_(_random(32, seed=3))
    return norm


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rms_norm_means_the_core_s_op(dtype: torch.dtype) -> None:
    norm, x = _norm(dtype), _random(5, 32, dtype=dtype)
    normed, rstd = _OPS.npu_rms_norm(x, norm.weight, epsilon=1e-5)
    assert torch.equal(normed, norm.forward_native(x))
    assert rstd.shape == (5, 1) and rstd.dtype == torch.float32


def test_add_rms_norm_gives_the_sum_as_third() -> None:
    norm, x, residual = _norm(torch.float32), _random(5, 32), _random(5, 32, seed=1)
    slot = FusedAddRMSNorm(32, 1e-5, torch.float32)
    slot.norm = norm
    normed, _, total = _OPS.npu_add_rms_norm(x, residual, norm.weight, epsilon=1e-5)
    want, want_total = slot.forward_native(x, residual)
    assert torch.equal(normed, want) and torch.equal(total, want_total)


def test_a_norm_refuses_a_weight_of_another_length() -> None:
    with pytest.raises(VendorLimitError, match="gamma"):
        _OPS.npu_rms_norm(_random(5, 32), _random(16))


def test_swiglu_means_the_core_s_op() -> None:
    x = _random(4, 48)
    assert torch.equal(_OPS.npu_swiglu(x, dim=-1), SiluAndMul().forward_native(x))


@pytest.mark.parametrize(("approximate", "code"), [("none", 0), ("tanh", 1)])
def test_geglu_with_the_left_half_active_means_the_core_s_op(approximate: str, code: int) -> None:
    x, op = _random(4, 48), GeluAndMul(approximate)
    left, _ = _OPS.npu_geglu(x, dim=-1, approximate=code, activate_left=True)
    assert torch.equal(left, op.forward_native(x))
    by_default, _ = _OPS.npu_geglu(x, dim=-1, approximate=code)
    assert not torch.allclose(by_default, left), "by default the other half is active"


@pytest.mark.parametrize("is_neox", [True, False])
def test_both_rotations_mean_the_core_s_op(is_neox: bool) -> None:
    angles = _random(16, 16, seed=4)
    cache = torch.cat((angles.cos(), angles.sin()), -1)
    op = RotaryEmbedding(32, 32, cache, is_neox)
    q, k, positions = _random(5, 4, 32), _random(5, 2, 32, seed=1), torch.tensor([3, 0, 9, 15, 2])
    want_q, want_k = op.forward_native(positions, q.clone(), k.clone())
    mode = "half" if is_neox else "interleave"
    got_q, got_k = _OPS.npu_mrope(
        positions,
        q.view(5, -1),
        k.view(5, -1),
        cache,
        32,
        mrope_section=[0, 0, 0],
        rotary_mode=mode,
    )
    torch.testing.assert_close(got_q.view(5, 4, 32), want_q)
    torch.testing.assert_close(got_k.view(5, 2, 32), want_k)
    cos, sin = cache.index_select(0, positions).chunk(2, dim=-1)
    if is_neox:
        wide = [torch.cat((half, half), -1)[None, :, None] for half in (cos, sin)]
    else:
        wide = [half.repeat_interleave(2, -1)[None, :, None] for half in (cos, sin)]
    turned = _OPS.npu_rotary_mul(q[None], *wide, rotary_mode=mode)
    torch.testing.assert_close(turned[0], want_q)


def test_mrope_refuses_widths_that_the_kernel_does_not_have() -> None:
    q = _random(2, 48, dtype=torch.bfloat16)
    cache = _random(8, 24, dtype=torch.bfloat16)
    with pytest.raises(VendorLimitError, match="multiples of 32"):
        _OPS.npu_mrope(torch.tensor([0, 1]), q, q, cache, 24)
    with pytest.raises(VendorLimitError, match="contiguous"):
        _OPS.npu_mrope(torch.tensor([0, 1]), _random(64, 2).t(), _random(2, 64), _random(8, 32), 32)


def test_top_k_top_p_cuts_what_the_core_s_op_cuts() -> None:
    logits = _random(6, 50)
    k, p = torch.tensor([1, 3, 50, 10, 50, 7]), torch.tensor([0.9, 0.5, 0.3, 1.0, 1.0, 0.01])
    want = TopKTopP().forward_native(logits, k, p)
    assert torch.equal(_OPS.npu_top_k_top_p(logits, p, k.to(torch.int32)), want)
    with pytest.raises(VendorLimitError, match="int32"):
        _OPS.npu_top_k_top_p(logits, p, k)


def test_the_dispatcher_refuses_a_keyword_that_the_schema_does_not_have() -> None:
    with pytest.raises(RuntimeError, match="eps"):
        _OPS.npu_rms_norm(_random(2, 32), _random(32), eps=1e-5)
