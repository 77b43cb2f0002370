"""What this platform registers. Decorators only mark; ``dougong explain MODEL --platform rocm``
shows what becomes of each mark, with the reason.

Here is the class that takes an op's place; single kernels are in ``kernels_aiter`` and
``kernels_triton``.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from weakref import WeakValueDictionary

import torch
from dougong.contracts import OneOf, hookimpl
from dougong.ops import CustomOp, RotaryEmbedding

from dougong_rocm import kernels_aiter, kernels_triton
from dougong_rocm.kernels_aiter import aiter_needs

_NEOX, _PAIRS = 0, 1  # AITER's names for how elements pair: by halves, or neighbours


class RotaryTables:
    """Cosines and sines apart, as AITER reads them; the layers of a model share one.

    Attributes:
        cos: float32 ``[max_position, 1, 1, rotary_dim / 2]``, contiguous.
        sin: The same.
    """

    def __init__(self, cos_sin_cache: torch.Tensor) -> None:
        half = cos_sin_cache.shape[-1] // 2
        shape = (cos_sin_cache.shape[0], 1, 1, half)
        self._source = cos_sin_cache  # whose memory is the key below: it must not be given back
        self.cos = cos_sin_cache[:, :half].contiguous().view(shape)
        self.sin = cos_sin_cache[:, half:].contiguous().view(shape)


_TABLES: WeakValueDictionary[tuple[object, ...], RotaryTables] = WeakValueDictionary()


def tables_of(cos_sin_cache: torch.Tensor) -> RotaryTables:
    """Those of a cache, made once for as long as somebody uses them."""
    cache = cos_sin_cache
    memory = cache.untyped_storage()._cdata
    key = (memory, cache.storage_offset(), cache.shape, cache.stride())
    tables = _TABLES.get(key)
    if tables is None:
        tables = _TABLES[key] = RotaryTables(cache)
    return tables


@CustomOp.register_oot(
    "rotary_embedding",
    name="rocm/aiter_rotary",
    when=aiter_needs("rope_cached_positions_2c_fwd_impl", head_dim=OneOf(64, 128, 256)),
)
class AiterRotaryEmbedding(RotaryEmbedding):
    """Queries and keys in one launch, in place.

    A class, since AITER wants the table in two: they are made once the op is on its device.
    """

    def __init__(
        self,
        head_dim: int,
        rotary_dim: int,
        cos_sin_cache: torch.Tensor,
        is_neox: bool = True,
        num_heads: int = 0,
        num_kv_heads: int = 0,
    ) -> None:
        super().__init__(head_dim, rotary_dim, cos_sin_cache, is_neox, num_heads, num_kv_heads)
        self._style = _NEOX if is_neox else _PAIRS
        self._tables: RotaryTables | None = None

    def post_load(self) -> None:
        """The op is on its device."""
        self._tables = tables_of(self.cos_sin_cache)

    def forward_oot(
        self, positions: torch.Tensor, q: torch.Tensor, k: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens are AITER's sequence axis, in a batch of one: strides between tokens and heads may
        be any."""
        assert self._tables is not None, "post_load is called before the first step"
        one_q, one_k = q.unsqueeze(1), k.unsqueeze(1)
        torch.ops.aiter.rope_cached_positions_2c_fwd_impl(
            one_q,
            one_k,
            one_q,
            one_k,
            self._tables.cos,
            self._tables.sin,
            positions.unsqueeze(1),
            rotate_style=self._style,
            reuse_freqs_front_part=True,
            nope_first=False,
        )
        return q, k


@hookimpl
def dougong_register_ops() -> Iterable[ModuleType]:
    """Marks of this module are found anyway; those of others are named here."""
    return [kernels_aiter, kernels_triton]
