"""Which of the bound implementations have run: a warm-up goes on until all have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import nn

from dougong.contracts.rank_plan import NATIVE
from dougong.ops import CustomOp
from dougong.ops.dispatch import BoundPiece
from dougong.ops.outline import named_ops


class CalledPieces:
    """Implementations that were called, by the path of the op and the place among its pieces."""

    def __init__(self) -> None:
        self._called: set[tuple[str, int]] = set()

    def note(self, path: str, index: int) -> None:
        """That piece of the op there was called."""
        self._called.add((path, index))

    def __call__(self, path: str, index: int) -> bool:
        """Whether it was."""
        return (path, index) in self._called


@contextmanager
def noting_calls(*modules: nn.Module) -> Iterator[CalledPieces]:
    """Inside, each call of an implementation that is not native is noted.

    Args:
        modules: Whose ops are bound.
    """
    called = CalledPieces()
    ops = [op for module in modules for _, op in named_ops(module)]
    bound = [
        (op, op.pieces) for op in ops if any(piece.implementation != NATIVE for piece in op.pieces)
    ]
    try:
        for op, pieces in bound:
            op.bind_pieces(_noting(op, at, piece, called) for at, piece in enumerate(pieces))
        yield called
    finally:
        for op, pieces in bound:
            op.bind_pieces(pieces)


def _noting(op: CustomOp, index: int, piece: BoundPiece, called: CalledPieces) -> BoundPiece:
    if piece.implementation == NATIVE:
        return piece

    def call(*args: Any) -> Any:
        called.note(op.path, index)
        return piece.call(*args)

    return replace(piece, call=call)
