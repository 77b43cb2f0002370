from __future__ import annotations

import struct
from pathlib import Path

import gguf
import pytest
from gguf import GGMLQuantizationType

from dougong.checkpoint.gguf_header import read_gguf_header
from dougong.errors import CheckpointError
from tests.support.checkpoints import random_blocks, random_rows, write_gguf

METADATA = {
    "test.text": "雷神 🐉",
    "test.flag": True,
    "test.number": 7,
    "test.fraction": 0.5,
    "test.words": ["a", "", "ü"],
    "test.numbers": [1, 2, 3],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tensors = {
        "token_embd.weight": (random_rows(8, 64), GGMLQuantizationType.F32),
        "blk.0.ffn_up.weight": (
            random_blocks(GGMLQuantizationType.Q4_K, 4, 512),
            GGMLQuantizationType.Q4_K,
        ),
    }
    return write_gguf(tmp_path / "m.gguf", tensors, metadata=METADATA)


def test_metadata_and_tensors_agree_with_the_librarys_reader(path: Path) -> None:
    header = read_gguf_header(path)
    reader = gguf.GGUFReader(path)
    for key, field in reader.fields.items():
        if not key.startswith("GGUF."):
            value = header.metadata[key]
            assert (list(value) if isinstance(value, tuple) else value) == field.contents(), key
    assert [
        (entry.stored_name, list(entry.shape), entry.format, entry.offset_bytes, entry.num_bytes)
        for entry in header.tensors
    ] == [
        (t.name, t.shape[::-1].tolist(), t.tensor_type.name, t.data_offset, t.n_bytes)
        for t in reader.tensors
    ]


def test_values_of_the_architecture_are_found_without_their_prefix(path: Path) -> None:
    header = read_gguf_header(path)
    assert header.architecture == "llama"
    assert header.value("block_count") == 2
    assert header.value("nothing", 5) == 5


def test_a_header_cut_anywhere_is_refused_and_never_misread(path: Path) -> None:
    content = path.read_bytes()
    end = read_gguf_header(path).tensors[0].offset_bytes
    for length in range(0, end - 32, 7):
        path.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match="not a usable GGUF file"):
            read_gguf_header(path)


def test_any_single_damaged_byte_is_either_refused_or_harmless(path: Path) -> None:
    content = path.read_bytes()
    end = read_gguf_header(path).tensors[0].offset_bytes
    num_refused = 0
    for position in range(0, end, 5):
        path.write_bytes(content[:position] + b"\xff" + content[position + 1 :])
        try:
            read_gguf_header(path)
        except CheckpointError:
            num_refused += 1
    assert num_refused > 0


@pytest.mark.parametrize(
    ("version", "message"), [(1, "its version is 1"), (0x03000000, "it is big-endian")]
)
def test_other_versions_are_refused(path: Path, version: int, message: str) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:4] + struct.pack("<I", version) + content[8:])
    with pytest.raises(CheckpointError, match=message):
        read_gguf_header(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"gone\.gguf cannot be read"):
        read_gguf_header(tmp_path / "gone.gguf")
