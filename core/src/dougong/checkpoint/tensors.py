"""Reading weights: one protocol for every file format, names as Hugging Face writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from dougong.checkpoint.completeness import check_complete
from dougong.checkpoint.files import CheckpointFiles, CheckpointFormat

if TYPE_CHECKING:
    import torch


class TensorSource(Protocol):
    """The tensors of one checkpoint, read on demand.

    Names are those of a Hugging Face checkpoint (``model.layers.0.self_attn.q_proj.weight``),
    values those that such a checkpoint would hold: permutations and offsets of other formats are
    undone. No tensor stays in memory after it was handed out.
    """

    def names(self) -> tuple[str, ...]:
        """All tensor names, in the order in which reading the files is sequential."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of the tensor, outermost axis first (``[out_features, in_features]``)."""
        ...

    def format(self, name: str) -> str:
        """How the file stores it, in capitals: ``"BF16"``, ``"F8_E4M3"``, ``"Q4_K"``, ..."""
        ...

    def num_bytes(self, name: str) -> int:
        """Bytes it takes in the file."""
        ...

    def read(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        """A new contiguous CPU tensor of ``dtype``, dequantized, owned by the caller.

        Needs little more memory than the result: conversion goes through small pieces.

        Raises:
            CheckpointError: Unknown name, or the file changed or failed while being read.
        """
        ...

    def read_into(self, name: str, out: torch.Tensor) -> None:
        """Fill ``out`` (CPU, contiguous, right shape, any float dtype) with the tensor.

        For callers that own the memory already, such as one part of a fused projection.

        Raises:
            CheckpointError: As `read`; also when the shapes differ.
        """
        ...

    def stored_row_bytes(self, name: str) -> int:
        """Bytes of a row in the file: of the last axis."""
        ...

    def read_stored_into(self, name: str, out: torch.Tensor) -> None:
        """Fill ``out`` (contiguous, uint8 ``[rows, stored_row_bytes]``, on any device) with the
        bytes of the file, rows in the order in which `read_into` has them.

        Raises:
            CheckpointError: As `read_into`; also where rows cannot be told apart.
        """
        ...

    def items(self, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
        """Every tensor once, in file order, one in memory at a time."""
        ...


def open_tensors(files: CheckpointFiles) -> TensorSource:
    """Open a checkpoint for reading its weights; `check_complete` runs first.

    Raises:
        CheckpointError: A file is missing, cut short or damaged, or a storage format is unknown;
            found from headers alone, before any weight is read.
    """
    check_complete(files)
    if files.format is CheckpointFormat.GGUF:
        from dougong.checkpoint.gguf_reader import GGUFTensors

        return GGUFTensors(files.weights)
    from dougong.checkpoint.safetensors_reader import SafetensorsTensors

    return SafetensorsTensors(files)
