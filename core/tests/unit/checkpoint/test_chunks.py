from __future__ import annotations

from pathlib import Path

import pytest

from dougong.checkpoint import chunks
from dougong.errors import CheckpointError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "data"
    found.write_bytes(bytes(range(100)))
    return found


def test_pieces_are_whole_units_and_give_the_range(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 25)
    pieces = [bytes(piece) for piece in chunks.read_chunks(path, 10, 70, unit_bytes=10)]
    assert [len(piece) for piece in pieces] == [20, 20, 20, 10]
    assert b"".join(pieces) == bytes(range(10, 80))


def test_a_unit_larger_than_a_chunk_is_still_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 8)
    assert [len(piece) for piece in chunks.read_chunks(path, 0, 60, unit_bytes=30)] == [30, 30]


def test_an_empty_range_gives_no_piece(path: Path) -> None:
    assert list(chunks.read_chunks(path, 0, 0, unit_bytes=4)) == []


def test_a_range_is_read_into_place(path: Path) -> None:
    into = bytearray(5)
    chunks.read_all(path, 95, memoryview(into))
    assert into == bytes(range(95, 100))


def test_an_early_end_is_an_error(path: Path) -> None:
    with pytest.raises(CheckpointError, match="ended while it was being read"):
        chunks.read_all(path, 96, memoryview(bytearray(5)))
    with pytest.raises(CheckpointError, match="cannot be read"):
        chunks.read_all(path.with_name("gone"), 0, memoryview(bytearray(1)))
