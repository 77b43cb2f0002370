"""Routing to experts, and products grouped by them."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.rungs.fakes.checks import FLOATS, HALVES, alike, need, same_shape


def topk_softmax(
    topk_weights: Tensor,
    topk_indices: Tensor,
    token_expert_indices: Tensor,
    gating_output: Tensor,
    renormalize: bool,
    bias: Tensor | None,
    is_padding: Tensor | None,
) -> None:
    need(topk_weights.dtype is torch.float32, f"topk_weights is {topk_weights.dtype}")
    need(gating_output.dtype in FLOATS, f"gating_output is {gating_output.dtype}")
    need(topk_indices.dtype in {torch.int32, torch.int64, torch.uint32}, "topk_indices are no ids")
    need(token_expert_indices.dtype is torch.int32, "token_expert_indices are not int32")
    for one in (topk_indices, token_expert_indices):
        same_shape(topk_weights, one, "a result")
    need(topk_weights.shape[0] == gating_output.shape[0], "rows differ in number")


def remap_hidden_states(
    hidden_states: Tensor,
    hidden_states_scales: Tensor | None,
    remapped_hidden_states: Tensor,
    remapped_hidden_states_scales: Tensor | None,
    expert_map: Tensor | None,
    rows_per_expert: Tensor,
    unpermuted_row_to_permuted_row: Tensor,
    topk_ids: Tensor,
    total_experts_num: int,
    local_experts_num: int,
) -> None:
    places = unpermuted_row_to_permuted_row
    need(hidden_states.is_contiguous(), "hidden_states is not contiguous")
    alike(hidden_states, remapped_hidden_states, "remapped_hidden_states")
    same_shape(topk_ids, places, "unpermuted_row_to_permuted_row")
    need(places.dtype is torch.int32, f"unpermuted_row_to_permuted_row is {places.dtype}")
    need(rows_per_expert.dtype is torch.int32, f"rows_per_expert is {rows_per_expert.dtype}")
    need(rows_per_expert.shape[0] == local_experts_num, "a count for each expert is needed")
    wanted = (topk_ids.numel(), hidden_states.shape[1])
    need(tuple(remapped_hidden_states.shape) == wanted, f"room is needed for {[*wanted]}")


def cutlass_grouped_gemm_interface(
    ptr_A: Tensor,  # noqa: N803 - names are the schema's
    ptr_A_scale: Tensor | None,  # noqa: N803
    ptr_B: Tensor,  # noqa: N803
    ptr_B_scale: Tensor | None,  # noqa: N803
    ptr_bias: Tensor | None,
    ptr_D: Tensor,  # noqa: N803
    rows_per_expert: Tensor,
    N: int,  # noqa: N803
    K: int,  # noqa: N803
    num_experts: int,
) -> Tensor:
    need(ptr_A.dtype in HALVES, f"ptr_A is {ptr_A.dtype}")
    alike(ptr_A, ptr_D, "ptr_D")
    alike(ptr_A, ptr_B, "ptr_B")
    need(tuple(ptr_B.shape) == (num_experts, K, N), f"ptr_B is {[*ptr_B.shape]}, not [E, K, N]")
    need(tuple(ptr_A.shape[1:]) == (K,), f"ptr_A is {[*ptr_A.shape]}, not [rows, K]")
    need(tuple(ptr_D.shape) == (ptr_A.shape[0], N), f"ptr_D is {[*ptr_D.shape]}, not [rows, N]")
    need(all(one.is_contiguous() for one in (ptr_A, ptr_B, ptr_D)), "a matrix is not contiguous")
    need(rows_per_expert.dtype is torch.int32, f"rows_per_expert is {rows_per_expert.dtype}")
    # the product's result is what was given for it, which a schema without marks must not return
    return torch.empty_like(ptr_D)


def moe_gather(
    output: Tensor,
    moe_output: Tensor,
    topk_weights: Tensor,
    unpermuted_row_to_permuted_row: Tensor,
    num_experts: int,
) -> None:
    alike(output, moe_output, "moe_output")
    need(topk_weights.dtype is torch.float32, f"topk_weights is {topk_weights.dtype}")
    same_shape(topk_weights, unpermuted_row_to_permuted_row, "unpermuted_row_to_permuted_row")
    need(moe_output.shape[0] == topk_weights.numel(), "rows differ in number")
    need(output.is_contiguous(), "output is not contiguous")
