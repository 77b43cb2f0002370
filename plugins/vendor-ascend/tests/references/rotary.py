"""Rotary position embedding in the vendor's three forms."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tests.references.refusals import HALVES, require, require_contiguous, require_dtype

_FLOATS = (*HALVES, torch.float32)


def npu_mrope(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    head_size: int,
    *,
    mrope_section: Sequence[int] | None = None,
    rotary_mode: str | None = "half",
    cache_mode: str | None = "default",
) -> tuple[torch.Tensor, torch.Tensor]:
    """New ``(query, key)``; the rotated part is as wide as the cache's rows.

    Positions of one axis only: three of them (images) have no reference.
    """
    op = "npu_mrope"
    require(rotary_mode in ("half", "interleave"), op, f"rotary_mode {rotary_mode!r} is unknown")
    require(cache_mode == "default", op, f"cache_mode {cache_mode!r} has no reference")
    sections = list(mrope_section or (0, 0, 0))
    require(sections == [0, 0, 0], op, f"mrope_section {sections} has no reference")
    require(positions.dim() == 1, op, f"positions {tuple(positions.shape)} must have one axis")
    require(positions.dtype in (torch.int64, torch.int32), op, f"positions are {positions.dtype}")
    require_dtype(op, _FLOATS, query=query, key=key, cos_sin_cache=cos_sin_cache)
    require_contiguous(op, query=query, key=key, positions=positions, cos_sin_cache=cos_sin_cache)
    rotary_dim, unit = cos_sin_cache.shape[-1], 16 if query.dtype == torch.float32 else 32
    require(rotary_dim % unit == 0, op, f"rotary_dim {rotary_dim}; takes multiples of {unit}")
    require(rotary_dim <= head_size, op, f"rotary_dim {rotary_dim} of a head of {head_size}")
    for name, heads in (("query", query), ("key", key)):
        fits = heads.dim() == 2 and heads.shape[0] == positions.shape[0]
        fits = fits and heads.shape[1] % head_size == 0
        require(fits, op, f"{name} {tuple(heads.shape)} must be [num_tokens, heads * head_size]")
    turn = _Turn(positions, cos_sin_cache, is_half=rotary_mode == "half")
    return turn(query, head_size), turn(key, head_size)


def npu_rotary_mul(
    input: torch.Tensor,
    r1: torch.Tensor,
    r2: torch.Tensor,
    rotary_mode: str = "half",
    rotate: torch.Tensor | None = None,
) -> torch.Tensor:
    """``input * r1 + turned(input) * r2``; both factors are as wide as the head."""
    op = "npu_rotary_mul"
    require(rotary_mode in ("half", "interleave"), op, f"rotary_mode {rotary_mode!r} is unknown")
    require(rotate is None, op, "rotate has no reference")
    require(input.dim() == 4 == r1.dim() == r2.dim(), op, "input, r1 and r2 must have four axes")
    require(r1.shape == r2.shape, op, f"r1 {tuple(r1.shape)} and r2 {tuple(r2.shape)} differ")
    head = input.shape[-1]
    require(r1.shape[-1] == head, op, f"r1 is {r1.shape[-1]} wide; the head is {head}")
    require(head % 2 == 0 and head <= 896, op, f"head {head}; takes even ones up to 896")
    require_dtype(op, _FLOATS, input=input, r1=r1, r2=r2)
    wide = input.float()
    if rotary_mode == "half":
        first, second = wide.chunk(2, dim=-1)
        turned = torch.cat((-second, first), dim=-1)
    else:
        turned = torch.stack((-wide[..., 1::2], wide[..., 0::2]), dim=-1).flatten(-2)
    return (wide * r1.float() + turned * r2.float()).to(input.dtype)


def npu_rotary_embedding(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox_style: bool,
) -> None:
    """``atb::_npu_rotary_embedding``: in place, heads of a token side by side."""
    op = "_npu_rotary_embedding"
    require_dtype(op, HALVES, query=query, key=key, cos_sin_cache=cos_sin_cache)
    require_contiguous(op, query=query, key=key, positions=positions, cos_sin_cache=cos_sin_cache)
    require(positions.dim() == 1, op, f"positions {tuple(positions.shape)} must have one axis")
    turn = _Turn(positions, cos_sin_cache, is_half=is_neox_style)
    for heads in (query, key):
        require(heads.dim() == 2, op, f"{tuple(heads.shape)} must be [num_tokens, heads * size]")
        heads.copy_(turn(heads, head_size))


class _Turn:
    """Rotates ``[num_tokens, heads * head_size]`` by the rows of a cache."""

    def __init__(self, positions: torch.Tensor, cache: torch.Tensor, *, is_half: bool) -> None:
        rows = cache.index_select(0, positions).float().unsqueeze(1)
        self._cos, self._sin = rows.chunk(2, dim=-1)
        self._width, self._is_half = cache.shape[-1], is_half

    def __call__(self, heads: torch.Tensor, head_size: int) -> torch.Tensor:
        x = heads.view(heads.shape[0], heads.shape[1] // head_size, head_size)
        part = x[..., : self._width].float()
        if self._is_half:
            first, second = part.chunk(2, dim=-1)
        else:
            first, second = part[..., 0::2], part[..., 1::2]
        pair = (
            first * self._cos - second * self._sin,
            second * self._cos + first * self._sin,
        )
        joined = torch.cat(pair, -1) if self._is_half else torch.stack(pair, -1).flatten(-2)
        return torch.cat((joined.to(x.dtype), x[..., self._width :]), -1).reshape(heads.shape)
