"""Tensors under the names that a model asks for, where a checkpoint has others."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from dougong.checkpoint.tensors import TensorSource

if TYPE_CHECKING:
    import torch

# As the first BERT checkpoints spell a norm's two tensors.
_OLD_ENDINGS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def named_as_wanted(source: TensorSource, wanted: Collection[str], prefix: str) -> TensorSource:
    """The same tensors, each under the wanted name that it is meant for, where there is one.

    Args:
        source: The checkpoint.
        wanted: Names that the model asks for.
        prefix: Begins names in some checkpoints of the family and is left out in others.
    """
    own = {_wanted_name(name, wanted, prefix): name for name in source.names()}
    is_same = all(ours == theirs for ours, theirs in own.items())
    # Two names for one place: the loader tells of both, under the names of the files.
    return source if is_same or len(own) < len(source.names()) else RenamedTensors(source, own)


class RenamedTensors:
    """See `TensorSource`.

    Args:
        source: Whose tensors they are.
        own: New name → the source's, for all of them, in its order.
    """

    def __init__(self, source: TensorSource, own: dict[str, str]) -> None:
        self._source = source
        self._own = own

    def names(self) -> tuple[str, ...]:
        """See `TensorSource.names`."""
        return tuple(self._own)

    def shape(self, name: str) -> tuple[int, ...]:
        """See `TensorSource.shape`."""
        return self._source.shape(self._own[name])

    def format(self, name: str) -> str:
        """See `TensorSource.format`."""
        return self._source.format(self._own[name])

    def num_bytes(self, name: str) -> int:
        """See `TensorSource.num_bytes`."""
        return self._source.num_bytes(self._own[name])

    def read(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        """See `TensorSource.read`."""
        return self._source.read(self._own[name], dtype)

    def read_into(self, name: str, out: torch.Tensor) -> None:
        """See `TensorSource.read_into`."""
        self._source.read_into(self._own[name], out)

    def stored_row_bytes(self, name: str) -> int:
        """See `TensorSource.stored_row_bytes`."""
        return self._source.stored_row_bytes(self._own[name])

    def read_stored_into(self, name: str, out: torch.Tensor) -> None:
        """See `TensorSource.read_stored_into`."""
        self._source.read_stored_into(self._own[name], out)

    def items(self, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
        """See `TensorSource.items`."""
        for name in self._own:
            yield name, self.read(name, dtype)


def _wanted_name(name: str, wanted: Collection[str], prefix: str) -> str:
    modern = name
    for old, new in _OLD_ENDINGS.items():
        if name.endswith(old):
            modern = name.removesuffix(old) + new
    for one in (name, modern, prefix + modern, modern.removeprefix(prefix)):
        if one in wanted:
            return one
    return name
