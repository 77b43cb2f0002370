"""Routing, rows sorted by expert, grouped products, and the weighted sum."""

from __future__ import annotations

import torch

from tests.references.limits import FLOATS, HALVES, check

_SUMMED = (1, 2, 4, 6, 8, 10)


def topk_softmax(
    topk_weights: torch.Tensor,
    topk_indices: torch.Tensor,
    token_expert_indices: torch.Tensor,
    gating_output: torch.Tensor,
    renormalize: bool,
    bias: torch.Tensor | None,
    is_padding: torch.Tensor | None,
) -> None:
    """Of equal logits the lowest expert."""
    check(gating_output.dtype in FLOATS, "Unsupported gating_output data type")
    check(gating_output.is_contiguous(), "topk_softmax: gating_output must be contiguous")
    check(topk_weights.dtype == torch.float32, "topk_weights must be contiguous float32")
    check(token_expert_indices.dtype == torch.int32, "token_expert_indices must be int32")
    check(bias is None and is_padding is None, "this reference has neither bias nor padding")
    top_k, wide = topk_weights.shape[1], gating_output.float()
    ordered, ids = wide.sort(dim=-1, descending=True, stable=True)
    chosen = ids[:, :top_k]
    shares = ordered[:, :top_k].softmax(-1) if renormalize else wide.softmax(-1).gather(1, chosen)
    topk_weights.copy_(shares)
    topk_indices.copy_(chosen)


def remap_hidden_states(
    hidden_states: torch.Tensor,
    hidden_states_scales: torch.Tensor | None,
    remapped_hidden_states: torch.Tensor,
    remapped_hidden_states_scales: torch.Tensor | None,
    expert_map: torch.Tensor | None,
    rows_per_expert: torch.Tensor,
    unpermuted_row_to_permuted_row: torch.Tensor,
    topk_ids: torch.Tensor,
    total_experts_num: int,
    local_experts_num: int,
) -> None:
    """Counts are added to ``rows_per_expert``: whoever calls has set them to zero."""
    check(topk_ids.dtype in (torch.int32, torch.int64), "topk_ids must be int64 or int32")
    check(topk_ids.shape[1] in _SUMMED, "Unsupported TopK value")
    check(rows_per_expert.dtype == torch.int32, "rows_per_expert must be int32")
    check(hidden_states.is_contiguous(), "hidden_states must be contiguous")
    check(
        hidden_states.shape[1] % (16 // hidden_states.element_size()) == 0,
        "hidden_size must be divisible by ElemsPerItem",
    )
    ids = topk_ids.flatten().long()
    num_rows, top_k = ids.shape[0], topk_ids.shape[1]
    check(remapped_hidden_states.shape[0] == num_rows, "must be [num_rows * TopK, hidden_size]")
    experts = torch.arange(local_experts_num, device=ids.device)
    counts = (ids.unsqueeze(0) == experts.unsqueeze(1)).int().sum(dim=1)
    rows_per_expert.copy_(rows_per_expert + counts)
    _, order = ids.sort(stable=True)
    places = torch.zeros_like(order)
    places[order] = torch.arange(num_rows, device=ids.device)
    unpermuted_row_to_permuted_row.copy_(places.view(-1, top_k))
    sources = order.div(top_k, rounding_mode="floor")
    remapped_hidden_states.copy_(hidden_states.index_select(0, sources))


def cutlass_grouped_gemm_interface(
    ptr_A: torch.Tensor,  # noqa: N803 - the schema's names
    ptr_A_scale: torch.Tensor | None,  # noqa: N803
    ptr_B: torch.Tensor,  # noqa: N803
    ptr_B_scale: torch.Tensor | None,  # noqa: N803
    ptr_bias: torch.Tensor | None,
    ptr_D: torch.Tensor,  # noqa: N803
    rows_per_expert: torch.Tensor,
    N: int,  # noqa: N803
    K: int,  # noqa: N803
    num_experts: int,
) -> torch.Tensor:
    """Rows of one expert after another with its weight ``[K, N]``."""
    check(ptr_A.dtype in HALVES and ptr_B.dtype == ptr_A.dtype, "A and B in half precision")
    check(tuple(ptr_B.shape) == (num_experts, K, N) and ptr_B.is_contiguous(), "B is [E, K, N]")
    check(ptr_A.shape[1] == K and ptr_A.is_contiguous(), "A is [rows, K]")
    check(tuple(ptr_D.shape) == (ptr_A.shape[0], N) and ptr_D.is_contiguous(), "D is [rows, N]")
    ends = rows_per_expert.cumsum(0)
    rows = torch.arange(ptr_A.shape[0], device=ptr_A.device)
    owner = torch.searchsorted(ends, rows, right=True).clamp(max=num_experts - 1)
    product = torch.bmm(ptr_A.float().unsqueeze(1), ptr_B[owner].float()).squeeze(1)
    ptr_D.copy_(product)
    return ptr_D


def moe_gather(
    output: torch.Tensor,
    moe_output: torch.Tensor,
    topk_weights: torch.Tensor,
    unpermuted_row_to_permuted_row: torch.Tensor,
    num_experts: int,
) -> None:
    """Summed in float32, rounded once."""
    check(topk_weights.dtype == torch.float32, "topk_weights must be float32")
    check(topk_weights.shape[1] in _SUMMED, f"error: not support TOPK={topk_weights.shape[1]}")
    places = unpermuted_row_to_permuted_row.flatten().long()
    rows = moe_output.index_select(0, places).float().view(*topk_weights.shape, -1)
    output.copy_((rows * topk_weights.unsqueeze(2)).sum(dim=1))
