"""Weights that stay as their file stores them: blocks of 32 integers that share a scale.

The kernels turn a few panels at a time into the compute dtype, in the first-level cache, with the
values that turning the whole weight at load gives; so the results are the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch

from dougong.contracts import UnsupportedError
from dougong.cpu.native import abi
from dougong.cpu.native.library import NativeLibrary, advise_huge_pages, dtype_code
from dougong.cpu.native.linear import PackedWeight
from dougong.cpu.native.pages import discard
from dougong.ops.stored_weight import BLOCK, STORED_FORMATS

FORMATS: Mapping[str, int] = MappingProxyType(
    {name: STORED_FORMATS[name] for name in abi.STORAGE_CODES}
)
"""Format → bytes of a block in the file."""

_PANEL = 16
_PIECE_BYTES = 1 << 20  # packed at once before its source is given back


def pack_blocks(
    library: NativeLibrary,
    raw: torch.Tensor,
    storage: str,
    dtype: torch.dtype,
    *,
    consume: bool = False,
) -> PackedWeight:
    """Copy a weight in the file's blocks into the layout of the kernels; as many bytes.

    Args:
        library: The kernels.
        raw: uint8 ``[N, K / 32 * bytes of a block]``, contiguous rows.
        storage: Of `FORMATS`.
        dtype: float32 or bfloat16, of inputs and of the values that products are made with.
        consume: Give the source's memory back piece by piece as it is copied; its contents are
            lost.

    Raises:
        UnsupportedError: The format is another one, or rows are no whole blocks.
    """
    return _pack(library, (raw,), storage, dtype, consume)


def pack_gate_up_blocks(
    library: NativeLibrary,
    gate: torch.Tensor,
    up: torch.Tensor,
    storage: str,
    dtype: torch.dtype,
    *,
    consume: bool = False,
) -> PackedWeight:
    """Two weights of one shape and format as a packed gated pair; see `pack_blocks`."""
    if gate.shape != up.shape:
        raise UnsupportedError(
            f"a gated pair needs two weights alike; gate has {tuple(gate.shape)} bytes, up "
            f"{tuple(up.shape)}"
        )
    return _pack(library, (gate, up), storage, dtype, consume)


def embedding_from_blocks(
    library: NativeLibrary, table: PackedWeight, ids: torch.Tensor, out: torch.Tensor
) -> None:
    """Rows of a table that `pack_blocks` made.

    Args:
        library: The kernels.
        table: Of any format.
        ids: int64 ``[num_tokens]``, contiguous, inside the table.
        out: ``[num_tokens, K]`` of the table's dtype, its last axis contiguous.
    """
    library.c.dg_embedding_blocks(
        table.data.data_ptr(),
        table.num_inputs,
        abi.STORAGE_CODES[table.storage],
        dtype_code(out.dtype, "output"),
        ids.data_ptr(),
        ids.shape[0],
        out.data_ptr(),
        out.stride(0),
    )


def _pack(
    library: NativeLibrary,
    raws: tuple[torch.Tensor, ...],
    storage: str,
    dtype: torch.dtype,
    consume: bool,
) -> PackedWeight:
    code = dtype_code(dtype, "activation")
    block_bytes = FORMATS.get(storage)
    n, row_bytes = raws[0].shape
    if block_bytes is None or row_bytes % block_bytes or raws[0].dtype is not torch.uint8:
        raise UnsupportedError(
            f"the kernels take uint8 rows of whole blocks in {', '.join(FORMATS)}; these are "
            f"{row_bytes} x {raws[0].dtype} in {storage}"
        )
    num_blocks = row_bytes // block_bytes
    panels = -(-n // _PANEL) * len(raws)
    data = torch.empty((panels, num_blocks, block_bytes * _PANEL), dtype=torch.uint8)
    advise_huge_pages(library, data)
    rows = [raw.contiguous() for raw in raws]
    step = max(1, _PIECE_BYTES // (row_bytes * _PANEL)) * _PANEL if consume else n
    for start in range(0, n, step):
        pieces = [raw[start : start + step] for raw in rows]
        library.c.dg_pack_blocks(
            pieces[0].data_ptr(),
            pieces[1].data_ptr() if len(pieces) > 1 else None,
            row_bytes,
            pieces[0].shape[0],
            num_blocks * BLOCK,
            abi.STORAGE_CODES[storage],
            code,
            data[start // _PANEL * len(raws)].data_ptr(),
            library.num_threads,
        )
        if consume:
            for piece in pieces:
                discard(piece)
    return PackedWeight(data, n, num_blocks * BLOCK, len(raws) > 1, storage, dtype)
