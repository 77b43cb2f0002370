from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dougong.checkpoint.gguf_cursor import GGUFCursor


@contextmanager
def cursor_over(path: Path, data: bytes) -> Iterator[GGUFCursor]:
    path.write_bytes(data)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        yield GGUFCursor(mapped, 0)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        (0, b"\xff", 255),
        (1, b"\xff", -1),
        (6, struct.pack("<f", 0.5), 0.5),
        (7, b"\x01", True),
        (8, text("größe"), "größe"),
        (9, struct.pack("<IQ3h", 3, 3, 1, -2, 3), (1, -2, 3)),
        (9, struct.pack("<IQ", 8, 2) + text("a") + text(""), ("a", "")),
        (9, struct.pack("<IQ", 9, 1) + struct.pack("<IQ2B", 0, 2, 7, 8), ((7, 8),)),
        (9, struct.pack("<IQ", 4, 0), ()),
        (12, struct.pack("<d", 1e300), 1e300),
    ],
)
def test_values_of_every_kind_are_read_and_passed(
    tmp_path: Path, kind: int, data: bytes, expected: object
) -> None:
    with cursor_over(tmp_path / "v", data) as cursor:
        assert cursor.value(kind) == expected
        assert cursor.offset == len(data)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (4, b"\0\0"),
        (8, struct.pack("<Q", 9) + b"short"),
        (9, struct.pack("<IQ", 4, 1 << 60)),
        (9, struct.pack("<IQ", 8, 5) + text("a")),
        (77, b"\0" * 8),
    ],
    ids=["cut number", "cut string", "endless array", "cut array", "unknown type"],
)
def test_what_goes_past_the_end_is_an_error(tmp_path: Path, kind: int, data: bytes) -> None:
    with cursor_over(tmp_path / "v", data) as cursor, pytest.raises(struct.error):
        cursor.value(kind)
