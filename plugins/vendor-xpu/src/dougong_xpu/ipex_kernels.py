"""Ops of the core computed by ``intel-extension-for-pytorch``, where it is what is installed.

See `dougong_xpu.ipex_library` for why no engine reaches these: each asks for a torch that is older
than the core's oldest.
"""

from __future__ import annotations

import torch
from dougong.contracts import MultipleOf, Needs, UnsupportedError
from dougong.ops import RotaryEmbedding, register_kernel

from dougong_xpu import ipex_library
from dougong_xpu.providers import EXTENSION, OLDER_TORCH

_FLOATS = frozenset({"float32", "bfloat16", "float16"})
_LAST = -10  # after anything else that this wheel has


@register_kernel(
    "rms_norm",
    name="xpu/ipex_rms_norm",
    when=Needs(library=EXTENSION, features={OLDER_TORCH}, dtype=_FLOATS),
    priority=_LAST,
)
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Over the last axis, into new memory."""
    normed: torch.Tensor = ipex_library.functional.rms_norm(x.contiguous(), weight, eps)
    return normed


@register_kernel(
    "fused_add_rms_norm",
    name="xpu/ipex_add_rms_norm",
    when=Needs(library=EXTENSION, features={OLDER_TORCH}, dtype=_FLOATS),
    priority=_LAST,
    mutates=("residual",),
)
def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum goes into the residual, in place."""
    if residual is None:
        return rms_norm(x, weight, eps), x
    normed: torch.Tensor = ipex_library.functional.add_rms_norm(
        residual, x, weight, None, eps, add_back=True
    )
    return normed, residual


@register_kernel(
    "silu_and_mul",
    name="xpu/ipex_silu_mul",
    when=Needs(library=EXTENSION, features={OLDER_TORCH}, dtype=_FLOATS),
    priority=_LAST,
)
def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """The library takes gate and up apart."""
    gate, up = x.chunk(2, dim=-1)
    gated: torch.Tensor = ipex_library.functional.silu_mul(gate.contiguous(), up.contiguous())
    return gated


@register_kernel(
    "gelu_and_mul",
    name="xpu/ipex_gelu_mul",
    when=Needs(
        library=EXTENSION, features={OLDER_TORCH}, dtype=_FLOATS, approximate={"none", "tanh"}
    ),
    priority=_LAST,
)
def gelu_and_mul(x: torch.Tensor, approximate: str) -> torch.Tensor:
    """The library takes gate and up apart."""
    gate, up = x.chunk(2, dim=-1)
    gated: torch.Tensor = ipex_library.functional.gelu_mul(
        gate.contiguous(), up.contiguous(), approximate=approximate
    )
    return gated


@register_kernel(
    "rotary_embedding",
    name="xpu/ipex_rotary_embedding",
    when=Needs(
        library=EXTENSION,
        features={OLDER_TORCH},
        dtype=_FLOATS,
        is_neox=True,
        head_dim=MultipleOf(16),
    ),
    priority=_LAST,
    mutates=("q", "k"),
)
class IpexRotaryEmbedding:
    """In place, halves of whole heads.

    The library reads sines before cosines, both in the dtype of the queries.

    Raises:
        UnsupportedError: Only a part of each head is rotated.
    """

    def __init__(self, op: RotaryEmbedding) -> None:
        if op.rotary_dim != op.head_dim:
            raise UnsupportedError(
                f"rotary_dim {op.rotary_dim} of head_dim {op.head_dim}; takes whole heads"
            )
        self._op = op
        self._tables: tuple[torch.Tensor, torch.Tensor] | None = None

    def __call__(
        self, positions: torch.Tensor, q: torch.Tensor, k: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As the op is called."""
        if self._tables is None or self._tables[0].dtype != q.dtype:
            cos, sin = self._op.cos_sin_cache.to(q.dtype).chunk(2, dim=-1)
            self._tables = sin.contiguous(), cos.contiguous()
        sin, cos = self._tables
        q, k = q.contiguous(), k.contiguous()
        turned_q, turned_k = ipex_library.functional.rotary_embedding(
            q, k, sin, cos, self._op.rotary_dim, True, position_ids=positions
        )
        return turned_q, turned_k
