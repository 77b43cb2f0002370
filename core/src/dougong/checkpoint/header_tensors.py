"""What every `TensorSource` over files has in common: everything but the reading of one tensor."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

import torch

from dougong.checkpoint.chunks import read_all
from dougong.checkpoint.headers import TensorHeader, check_destination, find_entry
from dougong.errors import CheckpointError


class HeaderTensors(ABC):
    """A `TensorSource` that answers from headers; a file format says how bytes become values.

    Args:
        entries: In file order, with names as Hugging Face writes them.
    """

    def __init__(self, entries: Iterable[TensorHeader]) -> None:
        self._entries = {entry.name: entry for entry in entries if entry.name}

    def names(self) -> tuple[str, ...]:
        """See `TensorSource.names`."""
        return tuple(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """See `TensorSource.shape`."""
        return self._entry(name).shape

    def format(self, name: str) -> str:
        """See `TensorSource.format`."""
        return self._entry(name).format

    def num_bytes(self, name: str) -> int:
        """See `TensorSource.num_bytes`."""
        return self._entry(name).num_bytes

    def read(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        """See `TensorSource.read`."""
        out = torch.empty(self._entry(name).shape, dtype=dtype)
        self.read_into(name, out)
        return out

    def read_into(self, name: str, out: torch.Tensor) -> None:
        """See `TensorSource.read_into`."""
        entry = self._entry(name)
        check_destination(entry, out)
        self._fill(entry, out)

    def stored_row_bytes(self, name: str) -> int:
        """See `TensorSource.stored_row_bytes`."""
        entry = self._entry(name)
        return entry.num_bytes // max(1, math.prod(entry.shape[:-1]))

    def read_stored_into(self, name: str, out: torch.Tensor) -> None:
        """See `TensorSource.read_stored_into`."""
        entry = self._entry(name)
        shape = (math.prod(entry.shape[:-1]), self.stored_row_bytes(name))
        if tuple(out.shape) != shape or out.nbytes != entry.num_bytes:
            raise CheckpointError(
                f"{name} is stored in {shape[0]} rows of {shape[1]} bytes, and there is room for "
                f"{tuple(out.shape)}"
            )
        here = out if out.is_cpu else torch.empty(shape, dtype=torch.uint8)
        read_all(entry.path, entry.offset_bytes, here.view(-1).numpy().data)
        self._order_rows(entry, here)
        if here is not out:
            out.copy_(here)

    @abstractmethod
    def _order_rows(self, entry: TensorHeader, out: torch.Tensor) -> None:
        """Bring rows, of values or of bytes, into the order of Hugging Face."""

    def items(self, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
        """See `TensorSource.items`."""
        for name in self._entries:
            yield name, self.read(name, dtype)

    def _entry(self, name: str) -> TensorHeader:
        return find_entry(self._entries, name)

    @abstractmethod
    def _fill(self, entry: TensorHeader, out: torch.Tensor) -> None:
        """Put the tensor's values into ``out``, whose shape and layout were checked."""
