from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from dougong.checkpoint.safetensors_header import safetensors_tensor_headers
from dougong.errors import CheckpointError

ENTRY: dict[str, Any] = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def with_header(path: Path, header: bytes, *, length: int | None = None) -> Path:
    path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header)
    return path


def test_entries_come_by_offset_with_places_counted_from_the_start_of_the_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.safetensors"
    tensors = {"b": torch.ones(2, 3), "a": torch.ones(4, dtype=torch.bfloat16)}
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    headers = safetensors_tensor_headers(path)
    assert {entry.name: (entry.shape, entry.format, entry.num_bytes) for entry in headers} == {
        "b": ((2, 3), "F32", 24),
        "a": ((4,), "BF16", 8),
    }
    assert headers[0].end_bytes == headers[1].offset_bytes
    assert headers[1].end_bytes == path.stat().st_size


@pytest.mark.parametrize(
    ("header", "length", "message"),
    [
        (b"", None, "not a header length"),
        (b"{}", 1 << 40, "not a header length"),
        (b"{}", 10, "ends inside its header"),
        (b"not json", None, "is not JSON"),
        (b"[]", None, "not a JSON object"),
        (b"\xff\xfe", None, "is not JSON"),
    ],
    ids=["empty", "huge", "cut", "no json", "no object", "no text"],
)
def test_what_is_no_header_is_refused(
    tmp_path: Path, header: bytes, length: int | None, message: str
) -> None:
    path = with_header(tmp_path / "m.safetensors", header, length=length)
    with pytest.raises(CheckpointError, match=message):
        safetensors_tensor_headers(path)


@pytest.mark.parametrize(
    "entry",
    [
        {**ENTRY, "data_offsets": [8, 0]},
        {**ENTRY, "data_offsets": [-8, 0]},
        {**ENTRY, "data_offsets": [0]},
        {**ENTRY, "shape": [-2]},
        {**ENTRY, "shape": "two"},
        {"dtype": "F32"},
        5,
    ],
    ids=["backwards", "before", "one offset", "negative", "no numbers", "missing", "no object"],
)
def test_a_malformed_entry_is_named(tmp_path: Path, entry: Any) -> None:
    header = json.dumps({"layer.weight": entry}).encode()
    path = with_header(tmp_path / "m.safetensors", header)
    with pytest.raises(CheckpointError, match=r"entry of layer\.weight is malformed"):
        safetensors_tensor_headers(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"gone\.safetensors cannot be read"):
        safetensors_tensor_headers(tmp_path / "gone.safetensors")
