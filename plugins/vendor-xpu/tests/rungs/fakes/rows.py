"""Norms, rotation, activations."""

from __future__ import annotations

from torch import Tensor, int64

from tests.rungs.fakes.checks import HALVES, alike, need, row, same_shape


def rms_norm(result: Tensor, input: Tensor, weight: Tensor | None, epsilon: float) -> None:
    need(result.is_contiguous(), "result is not contiguous")
    need(input.stride(-1) == 1, "input's last axis is not contiguous")
    same_shape(input, result, "result")
    alike(input, result, "result")
    alike(input, weight, "weight")
    row(weight, input.shape[-1], "weight")


def fused_add_rms_norm(
    input: Tensor, residual: Tensor, weight: Tensor | None, epsilon: float
) -> None:
    need(residual.is_contiguous(), "residual is not contiguous")
    same_shape(input, residual, "residual")
    for one, what in ((residual, "residual"), (weight, "weight")):
        alike(input, one, what)
    row(weight, input.shape[-1], "weight")


def layer_norm(
    result: Tensor, input: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float
) -> None:
    rms_norm(result, input, weight, epsilon)
    alike(input, bias, "bias")
    row(bias, input.shape[-1], "bias")


def gated(out: Tensor, input: Tensor) -> None:
    need(out.is_contiguous() and input.is_contiguous(), "a tensor is not contiguous")
    wanted = (*input.shape[:-1], input.shape[-1] // 2)
    need(tuple(out.shape) == wanted, f"out is {[*out.shape]}, not {[*wanted]}")
    alike(input, out, "out")


def rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor | None,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox: bool,
) -> None:
    need(positions.dtype is int64, f"positions is {positions.dtype}")
    alike(query, key, "key")
    alike(query, cos_sin_cache, "cos_sin_cache")
    need(cos_sin_cache.is_contiguous(), "cos_sin_cache is not contiguous")
    need(cos_sin_cache.shape[-1] <= head_size, "more is rotated than a head has")
    for one in (query, key):
        if one is not None:
            need(one.shape[0] == positions.shape[0], "rows and positions differ in number")
            need(one.stride(-1) == 1, "a head is not contiguous")
            need(one.shape[-1] % head_size == 0, f"{[*one.shape]} are no heads of {head_size}")
    if key is not None and query.dim() == 3:
        need(query.stride(1) == key.stride(1), "heads of queries and keys lie differently apart")


def fused_qk_norm_rope(
    qkv: Tensor,
    num_heads_q: int,
    num_heads_k: int,
    num_heads_v: int,
    head_dim: int,
    eps: float,
    q_weight: Tensor,
    k_weight: Tensor,
    cos_sin_cache: Tensor,
    is_neox: bool,
    position_ids: Tensor,
    forced_token_heads_per_warp: int = -1,
) -> None:
    need(qkv.dim() == 2 and qkv.is_contiguous(), "qkv is not contiguous rows")
    width = (num_heads_q + num_heads_k + num_heads_v) * head_dim
    need(qkv.shape[1] == width, f"qkv has {qkv.shape[1]} columns, not {width}")
    need(position_ids.dtype is int64, f"position_ids is {position_ids.dtype}")
    need(position_ids.shape[0] == qkv.shape[0], "rows and positions differ in number")
    need(cos_sin_cache.is_contiguous(), "cos_sin_cache is not contiguous")
    need(qkv.dtype in HALVES, f"qkv is {qkv.dtype}")
    for weight, what in ((q_weight, "q_weight"), (k_weight, "k_weight")):
        alike(qkv, weight, what)
        row(weight, head_dim, what)
