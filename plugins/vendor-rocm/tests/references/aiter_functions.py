"""References of AITER's Python functions that are no ops of the dispatcher."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from tests.references.limits import check, check_half
from tests.references.paged_attention import attend_paged

_TILE_N, _TILE_K = 16, 32


def unified_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    max_seqlen_q: int,
    seqused_k: torch.Tensor,
    max_seqlen_k: int,
    softmax_scale: float,
    causal: bool,
    window_size: tuple[int, int],
    block_table: torch.Tensor,
    softcap: float,
    q_descale: torch.Tensor | None,
    k_descale: torch.Tensor | None,
    v_descale: torch.Tensor | None,
    **rest: Any,
) -> None:
    """Over a paged cache; only causal, without scales of queries."""
    check(causal, "Only causal attention is supported")
    check(q_descale is None, "Q scales not supported")
    check(k_descale is None and v_descale is None, "not called here")
    block_size = v.shape[1]
    check(block_size & (block_size - 1) == 0, "a block is a power of two: tiles are made of it")
    window = None if window_size[0] < 0 else window_size[0] + 1
    attend_paged(
        q, k, v, block_table, seqused_k, cu_seqlens_q, out,
        scale=softmax_scale, window=window, soft_cap=softcap,
    )  # fmt: skip


def shuffle_weight(
    x: torch.Tensor, layout: tuple[int, int] = (16, 16), use_int4: bool = False
) -> torch.Tensor:
    """Rows in tiles of 16, columns in tiles of 32, each tile in pieces of 16 bytes."""
    check(layout == (16, 16) and not use_int4, "not called here")
    rows, columns = x.shape[-2:]
    check(rows % _TILE_N == 0 and columns % _TILE_K == 0, f"{rows} x {columns} is no whole tiles")
    return _tiled(x).permute(0, 1, 3, 4, 2, 5).contiguous().view(x.shape)


def fused_moe(
    hidden_states: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    topk_weight: torch.Tensor,
    topk_ids: torch.Tensor,
    **rest: Any,
) -> torch.Tensor:
    """Silu, gate rows first; weights as `shuffle_weight` leaves them."""
    check_half(hidden_states, "hidden_states")
    check(topk_ids.dtype == torch.int32, "ids are read as int32")
    check(topk_weight.dtype == torch.float32, "weights are read as float32")
    gate_up, down = _plain(w1).float(), _plain(w2).float()
    wide = hidden_states.float()
    total = torch.zeros_like(wide)
    for slot in range(topk_ids.shape[1]):
        expert = topk_ids[:, slot].long()
        both = torch.einsum("th,tih->ti", wide, gate_up[expert])
        gate, up = both.chunk(2, dim=-1)
        inner = (F.silu(gate) * up).to(hidden_states.dtype).float()
        total += torch.einsum("ti,thi->th", inner, down[expert]) * topk_weight[:, slot, None]
    return total.to(hidden_states.dtype)


def _tiled(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape[-2:]
    piece = 16 // x.element_size()
    return x.view(-1, rows // _TILE_N, _TILE_N, columns // _TILE_K, _TILE_K // piece, piece)


def _plain(shuffled: torch.Tensor) -> torch.Tensor:
    rows, columns = shuffled.shape[-2:]
    piece = 16 // shuffled.element_size()
    tiles = (-1, rows // _TILE_N, columns // _TILE_K, _TILE_K // piece, _TILE_N, piece)
    return shuffled.view(tiles).permute(0, 1, 4, 2, 3, 5).contiguous().view(shuffled.shape)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    function.__name__: function for function in (unified_attention, shuffle_weight, fused_moe)
}
"""Name → reference."""
