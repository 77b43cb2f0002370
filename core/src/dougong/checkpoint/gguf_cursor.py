"""Reading GGUF's basic values, one after another, from a mapped file."""

from __future__ import annotations

import mmap
import struct
from typing import Any

_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class GGUFCursor:
    """A reading position. Every read moves it past what was read.

    Raises:
        struct.error: The value goes past the end of the file, or its type is unknown.
    """

    def __init__(self, data: mmap.mmap, offset: int) -> None:
        self._data = data
        self.offset = offset

    def u32(self) -> int:
        value: int = _U32.unpack_from(self._data, self.offset)[0]
        self.offset += 4
        return value

    def u64(self) -> int:
        value: int = _U64.unpack_from(self._data, self.offset)[0]
        self.offset += 8
        return value

    def string(self) -> str:
        return self._strings(1)[0]

    def value(self, kind: int) -> object:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self._array()
        return self._numbers(kind, 1)[0]

    def _array(self) -> tuple[Any, ...]:
        kind, length = self.u32(), self.u64()
        if kind == _STRING:
            return self._strings(length)
        if kind == _ARRAY:
            return tuple(self._array() for _ in range(length))
        return self._numbers(kind, length)

    def _numbers(self, kind: int, count: int) -> tuple[Any, ...]:
        if kind not in _SCALARS:
            raise struct.error(f"value type {kind}")
        if count > len(self._data):
            raise struct.error("array longer than the file")
        layout = struct.Struct(f"<{count}{_SCALARS[kind]}")
        values = layout.unpack_from(self._data, self.offset)
        self.offset += layout.size
        return values

    def _strings(self, count: int) -> tuple[str, ...]:
        data, offset, unpack = self._data, self.offset, _U64.unpack_from
        found = []
        for _ in range(count):
            begin = offset + 8
            offset = begin + unpack(data, offset)[0]
            if offset > len(data):
                raise struct.error("string longer than the file")
            found.append(data[begin:offset].decode("utf-8", "replace"))
        self.offset = offset
        return tuple(found)
