"""One tensor's entry in a weight file's header, the same for every file format."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dougong.checkpoint.files import CheckpointFiles, CheckpointFormat
from dougong.errors import CheckpointError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """Where one tensor lies and how it is stored.

    Attributes:
        name: Hugging Face name.
        stored_name: The name the file uses.
        shape: Outermost axis first.
        format: Storage format in capitals, as the file's standard spells it.
        path: File that holds it.
        offset_bytes: Start of its data, from the start of the file.
        num_bytes: Length of its data in the file.
    """

    name: str
    stored_name: str
    shape: tuple[int, ...]
    format: str
    path: Path
    offset_bytes: int
    num_bytes: int

    @property
    def num_elements(self) -> int:
        """Number of elements; 1 for a scalar."""
        return math.prod(self.shape)

    @property
    def end_bytes(self) -> int:
        """First byte of the file after its data."""
        return self.offset_bytes + self.num_bytes


def tensor_headers(files: CheckpointFiles) -> tuple[TensorHeader, ...]:
    """Headers of every tensor of a checkpoint, file by file, by offset within each.

    Raises:
        CheckpointError: A header cannot be read. Lengths are not compared with the files' sizes;
            that is `check_complete`'s work.
    """
    if files.format is CheckpointFormat.GGUF:
        from dougong.checkpoint.gguf_header import gguf_tensor_headers as read
    else:
        from dougong.checkpoint.safetensors_header import safetensors_tensor_headers as read
    found = [header for path in files.weights for header in read(path)]
    return tuple(found)


def find_entry(entries: Mapping[str, TensorHeader], name: str) -> TensorHeader:
    """The entry of ``name``.

    Raises:
        CheckpointError: There is none.
    """
    try:
        return entries[name]
    except KeyError:
        raise CheckpointError(
            f"The checkpoint holds no tensor {name!r}. It may belong to another architecture than "
            f"its config says; it holds {len(entries)} tensors, such as "
            f"{', '.join([*entries][:3])}."
        ) from None


def check_destination(entry: TensorHeader, out: torch.Tensor) -> None:
    """Refuse a destination of another shape.

    Raises:
        CheckpointError: Shapes differ.
    """
    if tuple(out.shape) != entry.shape:
        raise CheckpointError(
            f"{entry.name} has shape {list(entry.shape)} in {entry.path.name}; the model made from "
            f"its config expects {list(out.shape)}. Config and weights do not belong together."
        )
    assert out.is_contiguous(), "callers own contiguous memory"
