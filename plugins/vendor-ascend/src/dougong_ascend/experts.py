"""Mixture of experts: tokens sorted by expert, one grouped product, and back."""

from __future__ import annotations

import torch
from dougong.contracts import AtMost, Between, Needs
from dougong.ops import MoEExperts, register_kernel

from dougong_ascend.names import FAST_ROUTING_ENV, TORCH_NPU

_EXPERTS = "ascend/grouped_matmul"
MOST_CHOSEN = 1024
"""Largest ``k`` of the choosing op."""


@register_kernel(
    "moe_route",
    name="ascend/gating_top_k_softmax",
    when=Needs(
        library=TORCH_NPU,
        features={"ascend.moe"},
        env={FAST_ROUTING_ENV: "1"},
        top_k=AtMost(MOST_CHOSEN),
    ),
)
def gating_top_k_softmax(
    logits: torch.Tensor, top_k: int, renormalize: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax and choice in one op.

    It compares shares, which may be equal where logits are not, and does not say whom it takes of
    equals; the core takes the lowest expert. So it is off unless asked for.
    """
    shares, expert_ids, _ = torch.ops.npu.npu_moe_gating_top_k_softmax(logits.float(), k=top_k)
    if renormalize:
        shares = shares / shares.sum(dim=-1, keepdim=True)
    return expert_ids.long(), shares


@register_kernel(
    "moe_experts",
    name=_EXPERTS,
    when=Needs(
        dtype="bfloat16",
        library=TORCH_NPU,
        features={"ascend.moe"},
        activation="silu",
        num_experts=Between(2, 128),
    ),
)
class GroupedExperts:
    """All experts in two grouped products; shares and sums are in the dtype of the tokens.

    Counts stay on the device: no part of it waits for the host.
    """

    def __init__(self, op: MoEExperts) -> None:
        self._num_experts = op.num_experts
        self._gate_up = op.gate_up_weight.transpose(1, 2).contiguous()  # [experts, in, out]
        self._down = op.down_weight.transpose(1, 2).contiguous()
        if op.is_alone(_EXPERTS):
            for weight in (op.gate_up_weight, op.down_weight):
                weight.data = weight.new_empty(0)

    def __call__(
        self, x: torch.Tensor, expert_ids: torch.Tensor, shares: torch.Tensor
    ) -> torch.Tensor:
        """See `MoEExperts`."""
        rows, places, counts, _ = torch.ops.npu.npu_moe_init_routing_v2(
            x.contiguous(),
            expert_ids.int().contiguous(),
            active_num=expert_ids.numel(),
            expert_num=self._num_experts,
            expert_tokens_num_type=1,
            expert_tokens_num_flag=True,
            active_expert_range=[0, self._num_experts],
            quant_mode=-1,
            row_idx_type=0,
        )
        inner = torch.ops.npu.npu_swiglu(self._product(rows, self._gate_up, counts), dim=-1)
        outer = self._product(inner, self._down, counts)
        combined: torch.Tensor = torch.ops.npu.npu_moe_token_unpermute(
            outer, places.abs(), probs=shares.to(x.dtype)
        )
        return combined

    def _product(
        self, rows: torch.Tensor, weight: torch.Tensor, counts: torch.Tensor
    ) -> torch.Tensor:
        """Rows of each expert times its weight; ``counts`` are rows per expert."""
        product: torch.Tensor = torch.ops.npu.npu_grouped_matmul(
            [rows],
            [weight],
            group_list=counts,
            split_item=2,
            group_type=0,
            group_list_type=1,
        )[0]
        return product
