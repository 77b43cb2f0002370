"""The header of a GGUF file: metadata and tensor entries, without the weights.

The ``gguf`` library's own reader makes several arrays per string of the vocabulary: 2.9 s for the
49,152 tokens of the demo model, against 0.1 s here. Its tables of storage types are used.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import functools
import math
import mmap
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dougong.checkpoint.gguf_cursor import GGUFCursor
from dougong.checkpoint.gguf_names import hf_tensor_name
from dougong.checkpoint.headers import TensorHeader
from dougong.errors import CheckpointError

_MAX_AXES = 8
_U32 = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """Everything a GGUF file says before its weights.

    Attributes:
        path: The file.
        metadata: Key to value; arrays are tuples, numbers are Python numbers.
        tensors: Entries by offset, names already in Hugging Face form.
    """

    path: Path
    metadata: Mapping[str, Any]
    tensors: tuple[TensorHeader, ...]

    @property
    def architecture(self) -> str:
        """Value of ``general.architecture``, such as ``"llama"``."""
        return str(self.metadata.get("general.architecture", ""))

    def value(self, key: str, default: Any = None) -> Any:
        """Metadata under the architecture's own prefix: ``value("block_count")``."""
        return self.metadata.get(f"{self.architecture}.{key}", default)


def read_gguf_header(path: Path) -> GGUFHeader:
    """Parse the header; repeated calls for an unchanged file share one result.

    Raises:
        CheckpointError: Missing, not GGUF, cut inside the header, or of an unknown version.
    """
    try:
        stat = path.stat()
    except OSError as exc:
        raise CheckpointError(f"{path} cannot be read: {exc.strerror or exc}.") from exc
    return _parse(path, stat.st_size, stat.st_mtime_ns)


def gguf_tensor_headers(path: Path) -> tuple[TensorHeader, ...]:
    """Tensor entries of one file, by offset, without those that only carry settings."""
    header = read_gguf_header(path)
    return tuple(entry for entry in header.tensors if entry.name)


@functools.lru_cache(maxsize=8)
def _parse(path: Path, size_bytes: int, mtime_ns: int) -> GGUFHeader:
    del mtime_ns  # part of the cache key only
    if size_bytes < 24:
        raise CheckpointError(_damaged(path, f"it holds only {size_bytes} bytes"))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return _parse_mapped(path, data)
        except (struct.error, ValueError, TypeError, OverflowError) as exc:
            why = f"it ends inside its header, or the header is damaged ({exc})"
            raise CheckpointError(_damaged(path, why)) from exc


def _parse_mapped(path: Path, data: mmap.mmap) -> GGUFHeader:
    if data[:4] != b"GGUF":
        raise CheckpointError(_damaged(path, "it does not begin with the letters GGUF"))
    version = _U32.unpack_from(data, 4)[0]
    if version not in (2, 3):
        big_endian = version & 0xFFFF == 0
        why = "it is big-endian" if big_endian else f"its version is {version}"
        raise CheckpointError(
            f"{path} cannot be read: {why}; little-endian versions 2 and 3 are understood. "
            "Convert the model again with a current converter."
        )
    cursor = GGUFCursor(data, 8)
    num_tensors, num_values = cursor.u64(), cursor.u64()
    metadata: dict[str, Any] = {}
    for _ in range(num_values):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.u32())
    raw = [_raw_entry(cursor) for _ in range(num_tensors)]
    alignment = int(metadata.get("general.alignment", 32))
    if alignment <= 0:
        raise CheckpointError(_damaged(path, f"its alignment is {alignment}"))
    start = -(-cursor.offset // alignment) * alignment
    architecture = str(metadata.get("general.architecture", ""))
    entries = [_tensor_header(path, start, architecture, *entry) for entry in raw]
    entries.sort(key=lambda entry: entry.offset_bytes)
    return GGUFHeader(path, MappingProxyType(metadata), tuple(entries))


def _raw_entry(cursor: GGUFCursor) -> tuple[str, tuple[int, ...], int, int]:
    """Name, shape (outermost first), type number, offset from the start of the data."""
    name = cursor.string()
    num_axes = cursor.u32()
    if num_axes > _MAX_AXES:
        raise struct.error(f"{num_axes} axes")
    axes = tuple(cursor.u64() for _ in range(num_axes))
    return name, axes[::-1], cursor.u32(), cursor.u64()


def _tensor_header(
    path: Path, start: int, arch: str, name: str, shape: tuple[int, ...], type_id: int, offset: int
) -> TensorHeader:
    found = _type_table()(type_id)
    if found is None:
        raise CheckpointError(
            f"{path}: tensor {name} has storage type {type_id}, unknown to the installed gguf "
            "library. Upgrade it (`pip install -U gguf`) or convert the model to a known type."
        )
    type_name, block_size, block_bytes = found
    num_elements = math.prod(shape)
    if shape and shape[-1] % block_size:
        raise CheckpointError(
            _damaged(path, f"rows of {name} hold {shape[-1]} values, not whole {type_name} blocks")
        )
    return TensorHeader(
        name=hf_tensor_name(name, arch),
        stored_name=name,
        shape=shape,
        format=type_name,
        path=path,
        offset_bytes=start + offset,
        num_bytes=num_elements // block_size * block_bytes,
    )


@functools.cache
def _type_table() -> Callable[[int], tuple[str, int, int] | None]:
    """Type number to (name, values per block, bytes per block)."""
    from gguf.constants import GGML_QUANT_SIZES

    table = {int(kind): (kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}
    return table.get


def _damaged(path: Path, why: str) -> str:
    return f"{path} is not a usable GGUF file: {why}. Fetch or copy it again."
