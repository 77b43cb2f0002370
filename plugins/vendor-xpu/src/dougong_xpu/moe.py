"""Mixture of experts by ``vllm-xpu-kernels``: routing, and products grouped by expert.

No model of this core version calls these ops; they are held against the ops' meaning in the tests.
"""

from __future__ import annotations

import torch
from dougong.contracts import AtMost, Between, MultipleOf, Needs, UnsupportedError
from dougong.ops import MoEExperts, register_kernel

from dougong_xpu.providers import KERNELS

_HALVES = frozenset({"bfloat16", "float16"})
_EXPERTS_PER_TOKEN = (1, 2, 4, 6, 8, 10)
"""What the kernels that sort and sum are compiled for."""


@register_kernel(
    "moe_route",
    name="xpu/topk_softmax",
    when=Needs(library=KERNELS, num_experts={8, 16, 32, 64, 128, 256}, top_k=AtMost(8)),
)
def topk_softmax(
    logits: torch.Tensor, top_k: int, renormalize: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of equal logits the lowest expert; ids come in 32 bits and leave in 64."""
    shape, device = (logits.shape[0], top_k), logits.device
    shares = torch.empty(shape, dtype=torch.float32, device=device)
    expert_ids = torch.empty(shape, dtype=torch.int32, device=device)
    sources = torch.empty(shape, dtype=torch.int32, device=device)
    torch.ops._moe_C.topk_softmax(
        shares,
        expert_ids,
        sources,
        logits.contiguous(),
        renormalize=renormalize,
        bias=None,
        is_padding=None,
    )
    return expert_ids.long(), shares


@register_kernel(
    "moe_experts",
    name="xpu/grouped_experts",
    when=Needs(
        library=KERNELS,
        features={"xpu.xe2_kernels"},
        dtype=_HALVES,
        num_experts=Between(2, 1024),
        hidden_size=MultipleOf(32),
        intermediate_size=MultipleOf(32),
        activation={"silu", "gelu", "gelu_pytorch_tanh"},
    ),
)
class XpuGroupedExperts:
    """Rows sorted by expert, two grouped products with the activation between, and their sum.

    Nothing here waits for the device: how many rows an expert has stays there.
    """

    def __init__(self, op: MoEExperts) -> None:
        """Weights in the library's order, input outermost; the op's own are given back where
        nothing else reads them."""
        self._op = op
        self._gate_up = op.gate_up_weight.transpose(1, 2).contiguous()
        self._down = op.down_weight.transpose(1, 2).contiguous()
        if op.is_alone("xpu/grouped_experts"):
            op.gate_up_weight.data = op.gate_up_weight.new_empty(0)
            op.down_weight.data = op.down_weight.new_empty(0)

    def __call__(
        self, x: torch.Tensor, expert_ids: torch.Tensor, shares: torch.Tensor
    ) -> torch.Tensor:
        """As the op is called."""
        op, (num_tokens, hidden_size) = self._op, x.shape
        expert_ids, shares = _widened(expert_ids, shares)
        top_k = expert_ids.shape[1]
        rows = x.new_empty((num_tokens * top_k, hidden_size))
        num_of_expert = torch.zeros(op.num_experts, dtype=torch.int32, device=x.device)
        places = torch.empty((num_tokens, top_k), dtype=torch.int32, device=x.device)
        torch.ops._moe_C.remap_hidden_states(
            x.contiguous(),
            hidden_states_scales=None,
            remapped_hidden_states=rows,
            remapped_hidden_states_scales=None,
            expert_map=None,
            rows_per_expert=num_of_expert,
            unpermuted_row_to_permuted_row=places,
            topk_ids=expert_ids.contiguous(),
            total_experts_num=op.num_experts,
            local_experts_num=op.num_experts,
        )
        inner = self._product(rows, self._gate_up, num_of_expert)
        computed = self._product(op.act(inner), self._down, num_of_expert)
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        torch.ops._moe_C.moe_gather(
            out,
            computed,
            shares.contiguous(),
            places,
            num_experts=op.num_experts,
        )
        return out

    def _product(
        self, rows: torch.Tensor, weight: torch.Tensor, num_of_expert: torch.Tensor
    ) -> torch.Tensor:
        """Each expert's rows with its own weight ``[num_experts, in, out]``."""
        num_experts, num_in, num_out = weight.shape
        out = rows.new_empty((rows.shape[0], num_out))
        torch.ops._xpu_C.cutlass_grouped_gemm_interface(
            rows,
            ptr_A_scale=None,
            ptr_B=weight,
            ptr_B_scale=None,
            ptr_bias=None,
            ptr_D=out,
            rows_per_expert=num_of_expert,
            N=num_out,
            K=num_in,
            num_experts=num_experts,
        )
        return out


def _widened(expert_ids: torch.Tensor, shares: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As many experts per token as there is a kernel for: the last one again, with no share.

    Raises:
        UnsupportedError: There are more than any kernel takes.
    """
    top_k = expert_ids.shape[1]
    width = next((one for one in _EXPERTS_PER_TOKEN if one >= top_k), None)
    if width is None:
        raise UnsupportedError(
            f"{top_k} experts per token; xpu/grouped_experts takes at most {_EXPERTS_PER_TOKEN[-1]}"
        )
    if width == top_k:
        return expert_ids, shares
    again = expert_ids[:, -1:].expand(-1, width - top_k)
    nothing = shares.new_zeros((shares.shape[0], width - top_k))
    return torch.cat((expert_ids, again), dim=1), torch.cat((shares, nothing), dim=1)
