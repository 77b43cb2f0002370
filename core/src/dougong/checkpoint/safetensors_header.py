"""The header of a safetensors file: 8 bytes of length, then JSON.

Read here rather than by the safetensors library, which maps whole files: mapped pages count as this
process's memory, and its errors do not say which tensors a cut file has lost.
Format: https://huggingface.co/docs/safetensors, "Format".
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from dougong.checkpoint.headers import TensorHeader
from dougong.errors import CheckpointError

_MAX_HEADER_BYTES = 100_000_000  # the format's own limit


def safetensors_tensor_headers(path: Path) -> tuple[TensorHeader, ...]:
    """Headers of one file, by offset.

    Raises:
        CheckpointError: Missing, or not a safetensors header.
    """
    start, entries = _read_header(path)
    headers = [
        _tensor_header(path, start, name, entry)
        for name, entry in entries.items()
        if name != "__metadata__"
    ]
    return tuple(sorted(headers, key=lambda header: (header.offset_bytes, header.name)))


def read_safetensors_metadata(path: Path) -> dict[str, str]:
    """What whoever wrote the file put beside its tensors; empty where there is nothing.

    Raises:
        CheckpointError: Missing, or not a safetensors header.
    """
    metadata = _read_header(path)[1].get("__metadata__")
    return {str(k): str(v) for k, v in metadata.items()} if isinstance(metadata, dict) else {}


def _read_header(path: Path) -> tuple[int, dict[str, Any]]:
    """Offset of the data and the parsed JSON."""
    try:
        with path.open("rb") as file:
            prefix = file.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
            if not 2 <= length <= _MAX_HEADER_BYTES:
                raise CheckpointError(_damaged(path, "its first 8 bytes are not a header length"))
            raw = file.read(length)
    except OSError as exc:
        raise CheckpointError(f"{path} cannot be read: {exc.strerror or exc}.") from exc
    if len(raw) < length:
        raise CheckpointError(_damaged(path, "it ends inside its header"))
    try:
        entries = json.loads(raw)
    except ValueError as exc:
        raise CheckpointError(_damaged(path, f"its header is not JSON ({exc})")) from exc
    if not isinstance(entries, dict):
        raise CheckpointError(_damaged(path, "its header is not a JSON object"))
    return 8 + length, entries


def _tensor_header(path: Path, start: int, name: str, entry: dict[str, Any]) -> TensorHeader:
    try:
        begin, end = (int(offset) for offset in entry["data_offsets"])
        shape = tuple(int(axis) for axis in entry["shape"])
        storage_format = str(entry["dtype"])
    except (KeyError, TypeError, ValueError) as exc:
        raise CheckpointError(_damaged(path, f"the header entry of {name} is malformed")) from exc
    if begin < 0 or end < begin or any(axis < 0 for axis in shape):
        raise CheckpointError(_damaged(path, f"the header entry of {name} is malformed"))
    return TensorHeader(name, name, shape, storage_format, path, start + begin, end - begin)


def _damaged(path: Path, why: str) -> str:
    return f"{path} is not a usable safetensors file: {why}. Fetch or copy it again."
