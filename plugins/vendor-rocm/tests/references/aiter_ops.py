"""References of AITER's ops, by the C++ sources in its wheel.

What a kernel takes for granted and does not check is an error here: on a device it would read or
write the wrong memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from dougong.contracts import AttentionRequest
from dougong.reference import ReferenceAttentionImpl
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from tests.references.limits import HALVES, check, check_half, check_rows
from tests.references.paged_attention import attend_paged

_VECTOR = 8  # elements of the widest load
_BLOCK = 128
_WRITER = ReferenceAttentionImpl(
    AttentionRequest(num_heads=1, num_kv_heads=1, head_dim=1, dtype="", kv_dtype=""), 1.0
)


def rms_norm(
    input: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    use_model_sensitive_rmsnorm: int = 0,
) -> torch.Tensor:
    """Rounded once."""
    check_half(input, "input")
    check_rows(input, "input")
    check(weight.dtype == input.dtype, f"weight is {weight.dtype}, read as {input.dtype}")
    check(weight.is_contiguous(), "weight has strides")
    return _normed(input.float(), weight, epsilon, input.dtype)


def rmsnorm2d_fwd_with_add(
    out: torch.Tensor,
    input: torch.Tensor,
    residual_in: torch.Tensor,
    residual_out: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    use_model_sensitive_rmsnorm: int = 0,
) -> None:
    """The sum is normalised before it is rounded."""
    for one in (out, input, residual_in, residual_out):
        check_half(one, "a tensor")
        check_rows(one, "a tensor")
        check(one.shape == input.shape, "shapes differ")
        check(one.dtype == weight.dtype, "dtypes differ")
    is_one = input.numel() > 0 and residual_out.data_ptr() == residual_in.data_ptr()
    check(not is_one, "long rows are read after the write")
    total = input.float() + residual_in.float()
    residual_out.copy_(total.to(input.dtype))
    out.copy_(_normed(total, weight, epsilon, input.dtype))


def _normed(
    wide: torch.Tensor, weight: torch.Tensor, eps: float, dtype: torch.dtype
) -> torch.Tensor:
    scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return (wide * scale * weight.float()).to(dtype)


def silu_and_mul(out: torch.Tensor, input: torch.Tensor) -> None:
    """In float32, rounded once."""
    gate, up = _halves(out, input)
    out.copy_((F.silu(gate) * up).to(out.dtype))


def gelu_and_mul(out: torch.Tensor, input: torch.Tensor) -> None:
    """By the error function."""
    gate, up = _halves(out, input)
    out.copy_((F.gelu(gate) * up).to(out.dtype))


def gelu_tanh_and_mul(out: torch.Tensor, input: torch.Tensor) -> None:
    """By the hyperbolic tangent."""
    gate, up = _halves(out, input)
    out.copy_((F.gelu(gate, approximate="tanh") * up).to(out.dtype))


def _halves(out: torch.Tensor, input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    check_half(input, "input")
    check(out.dtype == input.dtype, "out has another dtype")
    check(input.is_contiguous() and out.is_contiguous(), "rows are counted, strides are not")
    half = input.shape[-1] // 2
    check(half % _VECTOR == 0, f"rows of {half} elements are written past their end")
    check(out.shape == (*input.shape[:-1], half), "out has another shape")
    wide = input.float()
    return wide[..., :half], wide[..., half:]


def rope_cached_positions_2c_fwd_impl(
    output_x: torch.Tensor,
    output_y: torch.Tensor,
    input_x: torch.Tensor,
    input_y: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor,
    rotate_style: int,
    reuse_freqs_front_part: bool,
    nope_first: bool,
) -> None:
    """``[s, b, h, d]`` rotated by tables ``[max_position, 1, 1, d / 2]``."""
    check(positions.dim() == 2 and positions.stride(1) == 1, "positions are [s, b], contiguous")
    check(positions.dtype == torch.int64, "positions are read as int64")
    check(reuse_freqs_front_part and not nope_first, "no other kind is called here")
    check(rotate_style in (0, 1), f"rotate style {rotate_style}")
    for table in (cos, sin):
        check(table.dim() == 4 and table.is_contiguous(), "tables are contiguous, of four axes")
    for out, given in ((output_x, input_x), (output_y, input_y)):
        check(given.dim() == 4 and given.shape[:2] == positions.shape, "tensors are [s, b, h, d]")
        rotated = _rotated(given, cos, sin, positions, is_neox=rotate_style == 0)
        out.copy_(rotated)


def _rotated(
    given: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor,
    *,
    is_neox: bool,
) -> torch.Tensor:
    half = cos.shape[-1]
    at = positions.flatten()
    shape = (*positions.shape, 1, half)
    c, s = (table.view(-1, half)[at].float().view(shape) for table in (cos, sin))
    turned, rest = given[..., : 2 * half].float(), given[..., 2 * half :]
    if is_neox:
        first, second = turned[..., :half], turned[..., half:]
    else:
        first, second = turned[..., 0::2], turned[..., 1::2]
    pair = first * c - second * s, second * c + first * s
    joined = torch.cat(pair, dim=-1) if is_neox else torch.stack(pair, dim=-1).flatten(-2)
    rotated = joined.to(given.dtype)
    return torch.cat((rotated, rest), dim=-1) if rest.shape[-1] else rotated


def topk_softmax(
    topk_weights: torch.Tensor,
    topk_indices: torch.Tensor,
    token_expert_indices: torch.Tensor,
    gating_output: torch.Tensor,
    need_renorm: bool,
) -> None:
    """Highest first, of equal ones the lowest expert."""
    check(topk_weights.dtype == torch.float32, "weights are written as float32")
    check(topk_indices.dtype == torch.int32, "indices are written as int32")
    check(token_expert_indices.dtype == torch.int32, "source rows are written as int32")
    check(gating_output.is_contiguous(), "rows are counted, strides are not")
    top_k = topk_weights.shape[-1]
    shares = gating_output.float().softmax(dim=-1)
    ordered, experts = shares.sort(dim=-1, descending=True, stable=True)
    chosen = ordered[:, :top_k]
    if need_renorm:
        chosen = chosen / chosen.sum(dim=-1, keepdim=True)
    topk_weights.copy_(chosen)
    topk_indices.copy_(experts[:, :top_k].int())


def dynamic_per_token_scaled_quant(
    out: torch.Tensor,
    input: torch.Tensor,
    scales: torch.Tensor,
    scale_ub: torch.Tensor | None = None,
    shuffle_scale: bool = False,
    num_rows: torch.Tensor | None = None,
    num_rows_factor: int = 1,
) -> None:
    """One scale per row."""
    check_half(input, "input")
    check(input.is_contiguous() and out.is_contiguous(), "rows are counted, strides are not")
    check(out.dtype == torch.int8, f"out is {out.dtype}; int8 is called here")
    check(scales.dtype == torch.float32, "scales are written as float32")
    wide = input.float()
    scale = wide.abs().amax(dim=-1, keepdim=True) / 127
    scales.copy_(scale.view(scales.shape))
    units = wide / torch.where(scale == 0, torch.ones_like(scale), scale)
    out.copy_(units.round().clamp(-127, 127).to(torch.int8))


def gemm_a8w8(
    XQ: torch.Tensor,  # noqa: N803 - AITER's names
    WQ: torch.Tensor,  # noqa: N803
    x_scale: torch.Tensor,
    w_scale: torch.Tensor,
    bias: torch.Tensor | None = None,
    dtype: torch.dtype = torch.bfloat16,
    splitK: int | None = None,  # noqa: N803
) -> torch.Tensor:
    """Sums in int32, scaled in float32."""
    check(XQ.dtype == WQ.dtype == torch.int8, "both sides are int8")
    check(x_scale.dtype == w_scale.dtype == torch.float32, "scales have one dtype")
    check(x_scale.shape == (XQ.shape[0], 1), f"x_scale is {tuple(x_scale.shape)}, not [M, 1]")
    check(w_scale.shape == (1, WQ.shape[0]), f"w_scale is {tuple(w_scale.shape)}, not [1, N]")
    check(dtype in HALVES, f"output {dtype}")
    product = (XQ.float() @ WQ.float().t()) * x_scale * w_scale
    if bias is not None:
        check(bias.dtype == dtype, "bias has the dtype of the output")
        product = product + bias.float()
    return product.to(dtype)


def reshape_and_cache_flash(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    kv_cache_dtype: str,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
) -> None:
    """Rows of slots below 0 are skipped."""
    check(slot_mapping.dtype == torch.int64, f"slots are read as int64, not {slot_mapping.dtype}")
    check(kv_cache_dtype == "auto", "a cache in the dtype of keys is called here")
    check(key.dtype == key_cache.dtype, "cache and keys have one dtype under 'auto'")
    check(k_scale.dtype == v_scale.dtype == torch.float32, "scales are read as float32")
    check(key_cache.stride(0) == value_cache.stride(0), "caches have one stride of blocks")
    for rows in (key, value):
        is_packed = rows.stride(2) == 1 and (rows.shape[1] == 1 or rows.stride(1) == rows.shape[2])
        check(is_packed, "heads of one token lie side by side")
    for cache in (key_cache, value_cache):
        check(cache[0].is_contiguous(), "within a block only shapes count")
    _WRITER.write_kv(key, value, (key_cache, value_cache), slot_mapping)


def mha_varlen_fwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    min_seqlen_q: int,
    dropout_p: float,
    softmax_scale: float,
    logits_soft_cap: float,
    zero_tensors: bool,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    return_softmax_lse: bool,
    return_dropout_randval: bool,
    out: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    **rest: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Over a paged cache, causal from the end."""
    check_half(q, "q")
    check(q.dtype == k.dtype == v.dtype, "q, k and v have one dtype")
    check(block_table is not None and cu_seqlens_k is not None, "only a paged cache is called here")
    assert block_table is not None
    assert cu_seqlens_k is not None
    assert out is not None
    check(cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32, "starts are int32")
    check(cu_seqlens_q.is_contiguous() and cu_seqlens_k.is_contiguous(), "starts are contiguous")
    check(block_table.dtype == torch.int32, "block_table is int32")
    check(block_table.stride(-1) == 1, "rows of block_table are contiguous")
    check(q.stride(-1) == k.stride(-1) == v.stride(-1) == 1, "elements lie side by side")
    check(k.shape[1] % _BLOCK == 0, f"blocks of {k.shape[1]} tokens; multiples of {_BLOCK}")
    check(q.shape[-1] <= 256 and q.shape[-1] % 8 == 0, f"head size {q.shape[-1]}")
    check(q.shape[1] % k.shape[2] == 0, "query heads are a multiple of KV heads")
    check(cu_seqlens_q.shape == cu_seqlens_k.shape, "starts of q and of k are alike")
    check(block_table.shape[0] == cu_seqlens_q.shape[0] - 1, "one row of blocks per sequence")
    check(out.dtype == q.dtype and out.shape == q.shape, "out is as q")
    check(not (dropout_p or return_dropout_randval or return_softmax_lse), "not called here")
    check(is_causal and window_size_right == 0, "not called here")
    check(not logits_soft_cap, "over a paged cache nothing is built for a cap on scores")
    window = None if window_size_left < 0 else window_size_left + 1
    attend_paged(
        q, k, v, block_table, cu_seqlens_k[1:] - cu_seqlens_k[:-1], cu_seqlens_q, out,
        scale=softmax_scale, window=window, soft_cap=0.0,
    )  # fmt: skip
    empty = q.new_empty(0)
    return out.clone(), empty.float(), empty, empty.long()


OPS: Mapping[str, Callable[..., Any]] = {
    f"aiter::{function.__name__}": function
    for function in (
        rms_norm,
        rmsnorm2d_fwd_with_add,
        silu_and_mul,
        gelu_and_mul,
        gelu_tanh_and_mul,
        rope_cached_positions_2c_fwd_impl,
        topk_softmax,
        dynamic_per_token_scaled_quant,
        gemm_a8w8,
        reshape_and_cache_flash,
        mha_varlen_fwd,
    )
}
"""Op → reference."""
