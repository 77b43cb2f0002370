"""Weights of safetensors files, read by offset into the caller's memory."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch

from dougong.checkpoint.chunks import read_all, read_chunks
from dougong.checkpoint.files import CheckpointFiles
from dougong.checkpoint.header_tensors import HeaderTensors
from dougong.checkpoint.headers import TensorHeader, tensor_headers
from dougong.errors import CheckpointError

_DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {
        "F64": torch.float64,
        "F32": torch.float32,
        "F16": torch.float16,
        "BF16": torch.bfloat16,
        "F8_E4M3": torch.float8_e4m3fn,
        "F8_E5M2": torch.float8_e5m2,
        "I64": torch.int64,
        "I32": torch.int32,
        "I16": torch.int16,
        "I8": torch.int8,
        "U8": torch.uint8,
        "BOOL": torch.bool,
    }
)


class SafetensorsTensors(HeaderTensors):
    """A `TensorSource` over the safetensors files of one checkpoint.

    Raises:
        CheckpointError: A tensor is stored in an unknown dtype, or its length is wrong.
    """

    def __init__(self, files: CheckpointFiles) -> None:
        super().__init__(tensor_headers(files))
        for entry in self._entries.values():
            _check_entry(entry)

    def _fill(self, entry: TensorHeader, out: torch.Tensor) -> None:
        if not entry.num_elements:
            return
        stored = _DTYPES[entry.format]
        flat = out.view(-1)
        if stored == out.dtype:
            into = memoryview(flat.view(torch.uint8).numpy().data)
            read_all(entry.path, entry.offset_bytes, into)
            return
        begin = 0
        for piece in read_chunks(entry.path, entry.offset_bytes, entry.num_bytes, stored.itemsize):
            end = begin + len(piece) // stored.itemsize
            flat[begin:end].copy_(torch.frombuffer(piece, dtype=stored))
            begin = end

    def _order_rows(self, entry: TensorHeader, out: torch.Tensor) -> None:
        """They are in it."""


def _check_entry(entry: TensorHeader) -> None:
    dtype = _DTYPES.get(entry.format)
    if dtype is None:
        raise CheckpointError(
            f"{entry.name} in {entry.path.name} is stored as {entry.format}, which cannot be read. "
            f"Known: {', '.join(_DTYPES)}. Convert the checkpoint to one of them."
        )
    if entry.num_bytes != entry.num_elements * dtype.itemsize:
        raise CheckpointError(
            f"{entry.name} in {entry.path.name} takes {entry.num_bytes} bytes, but its shape "
            f"{list(entry.shape)} in {entry.format} needs {entry.num_elements * dtype.itemsize}. "
            "The file is damaged; fetch or copy it again."
        )
