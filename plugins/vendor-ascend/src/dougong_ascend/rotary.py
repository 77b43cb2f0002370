"""Rotary position embedding, by whichever of the vendor's ops takes the heads in question.

Each keeps the table of cosines and sines in the dtype of the heads, since the ops want one dtype:
it is made once, before the first capture.
"""

from __future__ import annotations

import torch
from dougong.contracts import AtMost, MultipleOf, Needs, OneOf
from dougong.ops import RotaryEmbedding, register_kernel

from dougong_ascend.names import PAGED_NZ, TORCH_NPU

_HALVES = frozenset({"bfloat16", "float16"})
_MAX_HEADS = 999
_MAX_DIM = 894


class _Tables:
    """Of one op, by dtype."""

    def __init__(self, cos_sin: torch.Tensor) -> None:
        self._wide = cos_sin
        self._by_dtype: dict[torch.dtype, torch.Tensor] = {}

    def of(self, dtype: torch.dtype) -> torch.Tensor:
        """``[max_position, rotary_dim]``: cosines, then sines."""
        if dtype not in self._by_dtype:
            self._by_dtype[dtype] = self._wide.to(dtype).contiguous()
        return self._by_dtype[dtype]


@register_kernel(
    "rotary_embedding",
    name="ascend/mrope",
    when=Needs(
        dtype=_HALVES,
        library=TORCH_NPU,
        features={"ascend.mrope"},
        is_neox=True,
        head_dim=MultipleOf(32),
        rotary_dim=MultipleOf(32),
    ),
    priority=10,
)
class Mrope:
    """Queries and keys in one op, which looks positions up by itself."""

    def __init__(self, op: RotaryEmbedding) -> None:
        self._head_dim = op.head_dim
        self._tables = _Tables(op.cos_sin_cache)

    def __call__(
        self, positions: torch.Tensor, q: torch.Tensor, k: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `RotaryEmbedding`."""
        turned_q, turned_k = torch.ops.npu.npu_mrope(
            positions.contiguous(),
            q.flatten(1).contiguous(),
            k.flatten(1).contiguous(),
            self._tables.of(q.dtype),
            self._head_dim,
            mrope_section=[0, 0, 0],  # one position per token
            rotary_mode="half",
            cache_mode="default",
        )
        return turned_q.view(q.shape), turned_k.view(k.shape)


@register_kernel(
    "rotary_embedding",
    name="ascend/rotary_mul",
    when=Needs(
        dtype=frozenset({"bfloat16", "float16", "float32"}),
        library=TORCH_NPU,
        features={"ascend.mrope"},
        head_dim=AtMost(_MAX_DIM),
        num_heads=AtMost(_MAX_HEADS),
    ),
)
class RotaryMul:
    """For pairs of neighbours, odd sizes and float32: each side by itself, cosines looked up
    here."""

    def __init__(self, op: RotaryEmbedding) -> None:
        self._rotary_dim, self._head_dim = op.rotary_dim, op.head_dim
        self._is_neox = op.is_neox
        self._tables = _Tables(op.cos_sin_cache)

    def __call__(
        self, positions: torch.Tensor, q: torch.Tensor, k: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `RotaryEmbedding`."""
        rows = self._tables.of(q.dtype).index_select(0, positions)
        cos, sin = (self._full(half) for half in rows.chunk(2, dim=-1))
        return self._turn(q, cos, sin), self._turn(k, cos, sin)

    def _full(self, half: torch.Tensor) -> torch.Tensor:
        """A factor for each element of the rotated part: ``[1, num_tokens, 1, rotary_dim]``."""
        if self._is_neox:
            both = torch.cat((half, half), dim=-1)
        else:
            both = torch.stack((half, half), dim=-1).flatten(-2)
        return both.view(1, -1, 1, self._rotary_dim)

    def _turn(self, heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        part = heads[..., : self._rotary_dim].contiguous().unsqueeze(0)
        turned: torch.Tensor = torch.ops.npu.npu_rotary_mul(
            part, cos, sin, rotary_mode="half" if self._is_neox else "interleave"
        )
        turned = turned.squeeze(0)
        if self._rotary_dim == self._head_dim:
            return turned
        return torch.cat((turned, heads[..., self._rotary_dim :]), dim=-1)


@register_kernel(
    "rotary_embedding",
    name="ascend/rotary_310p_128",
    when=Needs(
        dtype="float16",
        library=PAGED_NZ,
        features={"ascend.paged_nz"},
        head_dim=OneOf(128),
        rotary_dim=OneOf(128),
    ),
)
@register_kernel(
    "rotary_embedding",
    name="ascend/rotary_310p_64",
    when=Needs(
        dtype="float16",
        library=PAGED_NZ,
        features={"ascend.paged_nz"},
        head_dim=OneOf(64),
        rotary_dim=OneOf(64),
    ),
)
class Rotary310P:
    """On 310P, whole heads of 64 or 128; the op works in place, here on copies."""

    def __init__(self, op: RotaryEmbedding) -> None:
        self._head_dim, self._is_neox = op.head_dim, op.is_neox
        self._tables = _Tables(op.cos_sin_cache)

    def __call__(
        self, positions: torch.Tensor, q: torch.Tensor, k: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `RotaryEmbedding`."""
        turned = [heads.clone(memory_format=torch.contiguous_format).flatten(1) for heads in (q, k)]
        torch.ops.atb._npu_rotary_embedding(
            positions.contiguous(),
            turned[0],
            turned[1],
            self._head_dim,
            self._tables.of(q.dtype),
            self._is_neox,
        )
        return turned[0].view(q.shape), turned[1].view(k.shape)
