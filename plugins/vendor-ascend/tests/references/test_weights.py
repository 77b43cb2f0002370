"""References of eight-bit products and of experts against the core's meaning."""

from __future__ import annotations

import pytest
import torch
from dougong.ops import MoEExperts, MoERoute

from tests.references.refusals import VendorLimitError

pytestmark = pytest.mark.usefixtures("npu_ops")
_OPS = torch.ops.npu


def _random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def test_a_quantised_product_is_near_the_real_one() -> None:
    x, weight = _random(5, 2100, dtype=torch.bfloat16), _random(2100, 8, seed=1)
    scale = weight.abs().amax(0) / 127
    packed = (weight / scale).round().to(torch.int8)
    values, per_token = _OPS.npu_dynamic_quant(x, dst_type=torch.int8)
    got = _OPS.npu_quant_matmul(
        values, packed, scale, pertoken_scale=per_token, output_dtype=torch.bfloat16
    )
    torch.testing.assert_close(got.float(), x.float() @ weight, rtol=0.05, atol=1.5)
    exact = (values.double() @ packed.double()) * scale * per_token[:, None]
    torch.testing.assert_close(got, exact.to(torch.bfloat16), rtol=0.01, atol=0)


def test_a_scale_in_float16_is_refused() -> None:
    x, weight = torch.ones(2, 4, dtype=torch.int8), torch.ones(4, 3, dtype=torch.int8)
    with pytest.raises(VendorLimitError, match="161002"):
        _OPS.npu_quant_matmul(
            x, weight, torch.ones(3, dtype=torch.float16), output_dtype=torch.float16
        )
    with pytest.raises(VendorLimitError, match="output_dtype None"):
        _OPS.npu_quant_matmul(x, weight, torch.ones(3))


def test_experts_by_the_vendor_s_four_ops_mean_the_core_s() -> None:
    num_tokens, top_k, experts, hidden, inner = 6, 2, 4, 16, 8
    logits = _random(num_tokens, experts, seed=5)
    shares, ids, _ = _OPS.npu_moe_gating_top_k_softmax(logits, k=top_k)
    want_ids, want_shares = MoERoute(experts, top_k, renormalize=False).forward_native(logits)
    assert torch.equal(ids.long(), want_ids)
    torch.testing.assert_close(shares, want_shares)
    op = MoEExperts(experts, hidden, inner, "silu", torch.bfloat16)
    op.gate_up_weight.data.copy_(_random(experts, 2 * inner, hidden, seed=6))
    op.down_weight.data.copy_(_random(experts, hidden, inner, seed=7))
    x = _random(num_tokens, hidden, seed=8, dtype=torch.bfloat16)
    rows, places, counts, _ = _OPS.npu_moe_init_routing_v2(
        x,
        ids,
        active_num=num_tokens * top_k,
        expert_num=experts,
        expert_tokens_num_type=1,
        expert_tokens_num_flag=True,
        active_expert_range=[0, experts],
        quant_mode=-1,
        row_idx_type=0,
    )
    grouped = {"group_list": counts, "split_item": 2, "group_type": 0, "group_list_type": 1}
    up = op.gate_up_weight.transpose(1, 2).contiguous()
    down = op.down_weight.transpose(1, 2).contiguous()
    inside = _OPS.npu_swiglu(_OPS.npu_grouped_matmul([rows], [up], **grouped)[0], dim=-1)
    out = _OPS.npu_grouped_matmul([inside], [down], **grouped)[0]
    got = _OPS.npu_moe_token_unpermute(out, places, probs=shares)
    want = op.forward_native(x, ids.long(), shares)
    torch.testing.assert_close(got, want, rtol=0.05, atol=0.05)
    grouped["group_list_type"] = 0
    wrong = _OPS.npu_grouped_matmul([rows], [up], **grouped)[0]
    right = _OPS.npu_grouped_matmul([rows], [up], **{**grouped, "group_list_type": 1})[0]
    assert not torch.equal(wrong, right), "counts read as ends give other groups"


def test_a_weight_in_float32_has_no_form_in_pieces() -> None:
    with pytest.raises(VendorLimitError, match="float32"):
        _OPS.npu_format_cast(_random(16, 16), 29)
