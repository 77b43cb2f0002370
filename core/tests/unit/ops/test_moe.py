"""Experts chosen and computed, against definitions in Python's own floats and `transformers`."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import GptOssConfig, MixtralConfig, Qwen3MoeConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssTopKRouter
from transformers.models.mixtral.modeling_mixtral import MixtralExperts, MixtralTopKRouter
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeTopKRouter

from dougong.contracts import ConfigError
from dougong.ops import MoEExperts, MoERoute


def route_oracle(row: list[float], top_k: int, renormalize: bool) -> tuple[list[int], list[float]]:
    ids = sorted(range(len(row)), key=lambda expert: (-row[expert], expert))[:top_k]
    powers = [math.exp(value - max(row)) for value in row]
    total = math.fsum(powers[expert] for expert in (ids if renormalize else range(len(row))))
    return ids, [powers[expert] / total for expert in ids]


def check_route(logits: torch.Tensor, top_k: int, renormalize: bool) -> None:
    ids, shares = MoERoute(logits.shape[1], top_k, renormalize)(logits)
    assert (ids.dtype, shares.dtype) == (torch.int64, torch.float32)
    expected = [route_oracle(row, top_k, renormalize) for row in logits.double().tolist()]
    assert ids.tolist() == [row[0] for row in expected]
    torch.testing.assert_close(shares, torch.tensor([row[1] for row in expected]))


@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize(("num_experts", "top_k"), [(8, 2), (5, 5), (1, 1), (129, 7)])
def test_the_highest_logits_are_chosen_with_their_shares(
    num_experts: int, top_k: int, renormalize: bool
) -> None:
    torch.manual_seed(0)
    check_route(torch.randn(17, num_experts) * 3, top_k, renormalize)
    check_route((torch.randn(17, num_experts) * 3).bfloat16(), top_k, renormalize)


@pytest.mark.parametrize("renormalize", [True, False])
def test_of_equal_logits_the_lowest_experts_are_chosen_in_order(renormalize: bool) -> None:
    torch.manual_seed(0)
    check_route(torch.zeros(2, 64), 6, renormalize)
    check_route(torch.randint(0, 3, (200, 40)).float(), 9, renormalize)
    check_route(torch.tensor([[0.0, -0.0, 1.0, 1.0]]), 3, renormalize)


def test_shares_that_round_alike_do_not_hide_which_logit_is_higher() -> None:
    logits = torch.tensor([[0.0, -200.0, -150.0, -190.0]])  # all but one share are 0 in float32
    ids, shares = MoERoute(4, 3, renormalize=True)(logits)
    assert ids.tolist() == [[0, 2, 3]]
    assert shares.tolist() == [[1.0, 0.0, 0.0]]


def test_large_logits_do_not_overflow() -> None:
    check_route(torch.tensor([[3e4, 2.9999e4, -3e38], [1e38, 1e38, 0.0]]), 2, renormalize=True)
    check_route(torch.tensor([[3e4, 2.9999e4, -3e38], [1e38, 1e38, 0.0]]), 2, renormalize=False)


@pytest.mark.parametrize("renormalize", [True, False])
def test_an_excluded_expert_comes_last_and_nan_spoils_its_own_row(renormalize: bool) -> None:
    route = MoERoute(3, 2, renormalize)
    ids, shares = route(torch.tensor([[-torch.inf, 0.0, 1.0], [0.0, torch.nan, 2.0]]))
    assert ids[0].tolist() == [2, 1]
    assert shares[0].isfinite().all()
    assert shares[1].isnan().all()


def test_no_tokens_and_strides() -> None:
    route = MoERoute(6, 2, renormalize=True)
    ids, shares = route(torch.empty(0, 6))
    assert ids.shape == shares.shape == (0, 2)
    torch.manual_seed(0)
    logits = torch.randn(12, 5)
    for one, other in zip(
        route(logits.T[:, ::2]), route(logits.T[:, ::2].contiguous()), strict=True
    ):
        assert torch.equal(one, other)


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "qwen3_moe plain", "gpt_oss"])
def test_the_routers_of_transformers_agree(family: str) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_experts_per_tok": 3}
    router = {
        "mixtral": lambda: MixtralTopKRouter(MixtralConfig(num_local_experts=10, **sizes)),
        "qwen3_moe": lambda: Qwen3MoeTopKRouter(
            Qwen3MoeConfig(num_experts=10, norm_topk_prob=True, **sizes)
        ),
        "qwen3_moe plain": lambda: Qwen3MoeTopKRouter(
            Qwen3MoeConfig(num_experts=10, norm_topk_prob=False, **sizes)
        ),
        "gpt_oss": lambda: GptOssTopKRouter(GptOssConfig(num_local_experts=10, **sizes)),
    }[family]()
    for parameter in router.parameters():
        parameter.data.normal_()
    logits, shares, ids = router(torch.randn(9, 24))
    found_ids, found_shares = MoERoute(10, 3, family != "qwen3_moe plain")(logits)
    assert torch.equal(found_ids, ids)
    torch.testing.assert_close(found_shares, shares)


def experts(
    num_experts: int = 5, activation: str = "silu", dtype: torch.dtype = torch.float32
) -> MoEExperts:
    torch.manual_seed(0)
    op = MoEExperts(num_experts, 7, 9, activation, dtype)
    for parameter in op.parameters():
        parameter.data.normal_()
    return op


def activate(name: str, value: float) -> float:
    match name:
        case "silu":
            return value / (1 + math.exp(-value))
        case "gelu":
            return value * (1 + math.erf(value / math.sqrt(2))) / 2
        case _:
            inner = math.sqrt(2 / math.pi) * (value + 0.044715 * value**3)
            return value * (1 + math.tanh(inner)) / 2


def experts_oracle(
    op: MoEExperts, x: torch.Tensor, ids: torch.Tensor, shares: torch.Tensor
) -> torch.Tensor:
    up_weight, down_weight = op.gate_up_weight.double(), op.down_weight.double()
    out = torch.zeros(x.shape, dtype=torch.float64)
    for token, row in enumerate(x.double()):
        for expert, share in zip(ids[token].tolist(), shares[token].tolist(), strict=True):
            both = (up_weight[expert] * row).sum(-1).tolist()
            inner = [
                activate(op.activation, gate) * up
                for gate, up in zip(both[: len(both) // 2], both[len(both) // 2 :], strict=True)
            ]
            out[token] += share * (down_weight[expert] * torch.tensor(inner).double()).sum(-1)
    return out


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_pytorch_tanh"])
def test_each_token_goes_through_its_experts(activation: str) -> None:
    op = experts(activation=activation)
    x, shares = torch.randn(11, 7), torch.rand(11, 3)
    ids = torch.stack([torch.randperm(5)[:3] for _ in range(11)])
    expected = experts_oracle(op, x, ids, shares)
    torch.testing.assert_close(op(x, ids, shares).double(), expected, rtol=1e-4, atol=1e-4)


def test_experts_without_tokens_are_not_computed() -> None:
    op = experts()
    x, ids, shares = torch.randn(4, 7), torch.tensor([[3, 1]] * 4), torch.rand(4, 2)
    expected = op(x, ids, shares)
    for expert in (0, 2, 4):
        op.gate_up_weight.data[expert] = torch.nan
    calls, act = list[int](), op.act.kernel

    def counted(inner: torch.Tensor) -> torch.Tensor:
        calls.append(len(inner))
        activated: torch.Tensor = act(inner)
        return activated

    op.act.bind("acme/counted", counted)
    assert torch.equal(op(x, ids, shares), expected)
    assert calls == [4, 4]


def test_no_tokens_give_no_rows() -> None:
    found = experts()(torch.empty(0, 7), torch.empty(0, 2, dtype=torch.int64), torch.empty(0, 2))
    assert found.shape == (0, 7)


def test_the_order_of_a_tokens_experts_does_not_matter_and_one_expert_is_enough() -> None:
    op = experts()
    x, shares = torch.randn(3, 7), torch.rand(3, 3)
    ids = torch.tensor([[0, 2, 4]] * 3)
    assert torch.equal(op(x, ids, shares), op(x, ids.flip(1), shares.flip(1)))
    single = MoEExperts(1, 7, 9, "silu", torch.float32)
    single.gate_up_weight.data.copy_(op.gate_up_weight[:1])
    single.down_weight.data.copy_(op.down_weight[:1])
    zeros = torch.zeros(3, 1, dtype=torch.int64)
    expected = experts_oracle(single, x, zeros, torch.ones(3, 1))
    found = single(x, zeros, torch.ones(3, 1)).double()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_token_that_is_not_finite_spoils_itself_alone() -> None:
    op = experts()
    x, ids, shares = torch.randn(3, 7), torch.tensor([[0, 1]] * 3), torch.rand(3, 2)
    expected = op(x, ids, shares)
    x[1, 0] = torch.nan
    found = op(x, ids, shares)
    assert found[1].isnan().all()
    assert torch.equal(found[::2], expected[::2])


def test_parts_are_summed_in_float32_and_rounded_once() -> None:
    op = experts(num_experts=512, dtype=torch.bfloat16)
    for weight in op.parameters():
        weight.data.copy_(weight[:1].expand_as(weight))
    x = torch.randn(2, 7).bfloat16()
    one = op(x, torch.zeros(2, 1, dtype=torch.int64), torch.ones(2, 1))
    found = op(x, torch.arange(512).repeat(2, 1), torch.ones(2, 512))
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, one * 512)  # a sum in bfloat16 stops growing at 256 times one part


def test_strides_make_no_difference() -> None:
    op = experts()
    x = torch.randn(7, 4).T
    ids, shares = torch.tensor([[0, 1, 2, 4]] * 4).T[:2].T, torch.rand(4, 4)[:, ::2]
    expected = op(x.contiguous(), ids.contiguous(), shares.contiguous())
    assert torch.equal(op(x, ids, shares), expected)


def test_mixtral_of_transformers_agrees() -> None:
    torch.manual_seed(0)
    config = MixtralConfig(hidden_size=7, intermediate_size=9, num_local_experts=5)
    theirs, ours = MixtralExperts(config), experts()
    theirs.gate_up_proj.data.copy_(ours.gate_up_weight)
    theirs.down_proj.data.copy_(ours.down_weight)
    x = torch.randn(12, 7)
    ids, shares = MoERoute(5, 2, renormalize=True)(torch.randn(12, 5))
    with torch.inference_mode():
        torch.testing.assert_close(ours(x, ids, shares), theirs(x, ids, shares))


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"hidden_act='swoosh'.*silu"):
        experts(activation="swoosh")
