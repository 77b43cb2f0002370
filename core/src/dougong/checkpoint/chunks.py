"""Reading a file by pieces into memory that is used again, so that little of it stays resident."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from dougong.errors import CheckpointError

CHUNK_BYTES = (
    1 << 18
)  # with what is made of it, about 3 MiB: stays in cache, adds little to the peak


def read_chunks(path: Path, offset: int, num_bytes: int, unit_bytes: int) -> Iterator[memoryview]:
    """Yield ``num_bytes`` from ``offset`` in pieces of whole units of ``unit_bytes``.

    Every piece lies in the same buffer: it is overwritten by the next.

    Raises:
        CheckpointError: The file ends early or cannot be read (it changed since it was checked).
    """
    per_chunk = max(1, CHUNK_BYTES // unit_bytes) * unit_bytes
    buffer = memoryview(bytearray(min(per_chunk, num_bytes)))
    with _open(path) as file:
        file.seek(offset)
        for done in range(0, num_bytes, per_chunk):
            piece = buffer[: min(per_chunk, num_bytes - done)]
            fill(file, piece, path)
            yield piece


def read_all(path: Path, offset: int, into: memoryview) -> None:
    """Fill ``into`` from ``offset`` of the file.

    Raises:
        CheckpointError: As `read_chunks`.
    """
    with _open(path) as file:
        file.seek(offset)
        fill(file, into, path)


def fill(file: BinaryIO, into: memoryview, path: Path) -> None:
    """Read until ``into`` is full; one read may return less."""
    done = 0
    while done < len(into):
        count = file.readinto(into[done:])  # type: ignore[attr-defined] # raw files have it
        if not count:
            raise CheckpointError(f"{path} ended while it was being read. Did it change meanwhile?")
        done += count


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb", buffering=0)
    except OSError as exc:
        raise CheckpointError(f"{path} cannot be read: {exc.strerror or exc}.") from exc
