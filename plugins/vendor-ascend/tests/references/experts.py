"""Mixture of experts: choosing, sorting tokens by expert, products by group, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tests.references.refusals import (
    HALVES,
    require,
    require_contiguous,
    require_dtype,
    require_unused,
)


def npu_moe_gating_top_k_softmax(
    x: torch.Tensor, finished: torch.Tensor | None = None, k: int = 1
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``(shares, expert ids, row numbers)``: softmax over all experts, then the highest ``k``."""
    op = "npu_moe_gating_top_k_softmax"
    require(finished is None, op, "no reference for finished rows")
    require_dtype(op, (*HALVES, torch.float32), x=x)
    require(x.dim() == 2, op, "this reference takes two axes")
    require(0 < k <= min(x.shape[-1], 1024), op, f"k {k} of {x.shape[-1]} experts")
    ordered, ids = x.float().softmax(dim=-1).sort(dim=-1, descending=True, stable=True)
    rows = torch.arange(x.shape[0] * k, device=x.device).view(k, x.shape[0]).t().contiguous()
    return ordered[:, :k].to(x.dtype), ids[:, :k].to(torch.int32), rows.to(torch.int32)


def npu_moe_init_routing_v2(
    x: torch.Tensor,
    expert_idx: torch.Tensor,
    *,
    scale: torch.Tensor | None = None,
    offset: torch.Tensor | None = None,
    active_num: int = -1,
    expert_capacity: int = -1,
    expert_num: int = -1,
    drop_pad_mode: int = 0,
    expert_tokens_num_type: int = 0,
    expert_tokens_num_flag: bool = False,
    quant_mode: int = -1,
    active_expert_range: Sequence[int] = (),
    row_idx_type: int = 0,
    x_dtype: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """``(rows by expert, place of each choice, tokens per expert, empty scales)``."""
    op = "npu_moe_init_routing_v2"
    require(scale is None and offset is None and quant_mode == -1, op, "no reference for scales")
    require(drop_pad_mode == 0 and x_dtype is None, op, "no reference for dropped tokens")
    require(expert_idx.dtype == torch.int32, op, f"expert_idx is {expert_idx.dtype}")
    require_contiguous(op, x=x, expert_idx=expert_idx)
    num_tokens, top_k = expert_idx.shape
    require(active_num in (-1, num_tokens * top_k), op, f"active_num {active_num}")
    require(list(active_expert_range) in ([], [0, expert_num]), op, "no reference for a part")
    require(row_idx_type == 0, op, f"no reference for row_idx_type {row_idx_type}")
    require(expert_tokens_num_flag, op, "no reference without expert_tokens_num_flag")
    require(expert_tokens_num_type == 1, op, f"no reference for type {expert_tokens_num_type}")
    chosen = expert_idx.flatten().to(torch.int64)
    _, order = chosen.sort(stable=True)
    places = torch.empty_like(order)
    places.index_put_((order,), torch.arange(order.shape[0], device=x.device))
    rows = x.index_select(0, order.div(top_k, rounding_mode="floor"))
    experts = torch.arange(expert_num, device=x.device).unsqueeze(1)
    counts = (chosen.unsqueeze(0) == experts).sum(dim=1)
    return rows, places.to(torch.int32), counts, x.new_empty(0, dtype=torch.float32)


def npu_grouped_matmul(
    x: Sequence[torch.Tensor],
    weight: Sequence[torch.Tensor],
    *,
    group_list: torch.Tensor | None = None,
    split_item: int | None = 0,
    group_type: int | None = None,
    group_list_type: int | None = 0,
    **others: Any,
) -> list[torch.Tensor]:
    """Rows of each group times that group's weight ``[groups, in, out]``.

    ``group_list`` is cumulative unless ``group_list_type`` is 1. It stays on the device: each group
    computes all rows and keeps its own.
    """
    op = "npu_grouped_matmul"
    require_unused(op, others)
    require(len(x) == len(weight) == 1, op, "no reference for several tensors")
    require(split_item in (2, 3) and group_type == 0, op, "no reference for other splits")
    require(group_list is not None and group_list.dtype == torch.int64, op, "group_list: int64")
    assert group_list is not None
    rows, stacked = x[0], weight[0]
    require_dtype(op, HALVES, x=rows, weight=stacked)
    require(stacked.dim() == 3, op, f"weight {tuple(stacked.shape)} must be [groups, in, out]")
    require(stacked.shape[1] == rows.shape[1], op, "x and weight differ in the inner axis")
    groups = stacked.shape[0]
    require(group_list.shape[0] == groups <= 128, op, f"{groups} groups; takes at most 128")
    ends = group_list.cumsum(0) if group_list_type == 1 else group_list
    place = torch.arange(rows.shape[0], device=rows.device).unsqueeze(1)
    result = rows.new_zeros(rows.shape[0], stacked.shape[2])
    for group in range(groups):
        inside = place < ends[group]
        if group:
            inside = inside.logical_and(place >= ends[group - 1])
        result = torch.where(inside, torch.mm(rows, stacked[group]), result)
    return [result]


def npu_moe_token_unpermute(
    permuted_tokens: torch.Tensor,
    sorted_indices: torch.Tensor,
    probs: torch.Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: Sequence[int] | None = None,
) -> torch.Tensor:
    """Each token's rows, weighted and summed."""
    op = "npu_moe_token_unpermute"
    require(not padded_mode and restore_shape is None, op, "no reference for padding")
    require(probs is not None, op, "no reference without probs")
    assert probs is not None
    require(sorted_indices.dtype == torch.int32, op, f"sorted_indices is {sorted_indices.dtype}")
    rows = permuted_tokens.index_select(0, sorted_indices)
    parts = rows.float().view(*probs.shape, -1) * probs.float().unsqueeze(-1)
    return parts.sum(dim=1).to(permuted_tokens.dtype)
