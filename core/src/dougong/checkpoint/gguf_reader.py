"""Weights of GGUF files, dequantized piece by piece into the caller's memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from dougong.checkpoint.chunks import read_chunks
from dougong.checkpoint.dequantize import dequantize_into, is_readable
from dougong.checkpoint.gguf_header import GGUFHeader, read_gguf_header
from dougong.checkpoint.gguf_names import interleaved_projection, is_norm_plus_one
from dougong.checkpoint.header_tensors import HeaderTensors
from dougong.checkpoint.headers import TensorHeader
from dougong.errors import CheckpointError


class GGUFTensors(HeaderTensors):
    """A `TensorSource` over one GGUF file, or over all parts of a split one.

    Raises:
        CheckpointError: A tensor is stored in a type that cannot be dequantized; all are listed.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        first = read_gguf_header(paths[0])
        self._architecture = first.architecture
        self._num_heads = _head_counts(first)
        super().__init__(entry for path in paths for entry in read_gguf_header(path).tensors)
        _check_readable(self._entries.values())

    def _fill(self, entry: TensorHeader, out: torch.Tensor) -> None:
        if is_norm_plus_one(entry.stored_name, self._architecture):
            exact = torch.empty(entry.shape)  # rounding 1 + w first would lose most of w
            _read_stored(entry, exact)
            out.copy_(exact.sub_(1))
            return
        _read_stored(entry, out)
        self._order_rows(entry, out)

    def _order_rows(self, entry: TensorHeader, out: torch.Tensor) -> None:
        projection = interleaved_projection(entry.stored_name, self._architecture)
        if projection is not None:
            _undo_interleaving(out, self._num_heads[projection])


def _read_stored(entry: TensorHeader, out: torch.Tensor) -> None:
    """Fill ``out`` with the values as the file has them."""
    flat = out.view(-1)
    values_per_byte = entry.num_elements / max(1, entry.num_bytes)
    begin = 0
    for piece in read_chunks(entry.path, entry.offset_bytes, entry.num_bytes, _unit_bytes(entry)):
        end = begin + round(len(piece) * values_per_byte)
        raw = torch.frombuffer(piece, dtype=torch.uint8)
        dequantize_into(raw, entry.format, flat[begin:end])
        begin = end


def _head_counts(header: GGUFHeader) -> dict[str, int]:
    num_heads = int(header.value("attention.head_count", 1))
    num_kv_heads = int(header.value("attention.head_count_kv", num_heads))
    return {"q": num_heads, "k": num_kv_heads}


def _undo_interleaving(out: torch.Tensor, num_heads: int) -> None:
    """Reorder each head's rows from 0, d/2, 1, d/2+1, ... to 0, 1, ..., in place."""
    for head in out.view(num_heads, -1, *out.shape[1:]):
        pairs = head.view(head.shape[0] // 2, 2, *head.shape[1:])
        head.copy_(pairs.transpose(0, 1).reshape(head.shape))


def _unit_bytes(entry: TensorHeader) -> int:
    """Bytes of one row: the piece that can be converted alone."""
    num_rows = entry.num_elements // entry.shape[-1] if entry.shape and entry.shape[-1] else 1
    return max(1, entry.num_bytes // max(1, num_rows))


def _check_readable(entries: Iterable[TensorHeader]) -> None:
    unreadable: dict[str, list[str]] = {}
    for entry in entries:
        if not is_readable(entry.format):
            unreadable.setdefault(entry.format, []).append(entry.stored_name)
    if unreadable:
        raise CheckpointError(
            "Some weights are stored in types that cannot be read. "
            "Convert the model to a common type such as Q4_K_M, Q8_0 or BF16.",
            tuple(
                f"{kind}: {names[0]} and {len(names) - 1} more"
                for kind, names in unreadable.items()
            ),
        )
