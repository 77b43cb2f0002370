"""Token counts at which a step comes to an implementation, past the ops around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from dougong.contracts import OpPiece, RankPlan
from dougong.contracts.rank_plan import NATIVE


def reaching_counts(plan: RankPlan) -> Iterator[tuple[str, int, list[int]]]:
    """Each piece that is not native, with token counts that reach it, ascending.

    An op inside another is called by the other's native code alone, so what is bound around it
    counts, too. There is one count for every such way to reach it; without any, no step does.

    Yields:
        The op's path, the place among its pieces, the counts.
    """
    pieces = {path: one.pieces for one in plan.ops for path in one.paths}
    for path, own in pieces.items():
        around = [pieces[outer] for outer in _outer_paths(path) if outer in pieces]
        for index, (first, last, name) in enumerate(_ranges(own)):
            if name == NATIVE:
                continue
            starts = {first, *(start for outer in around for start, _, _ in _ranges(outer))}
            yield (
                path,
                index,
                [
                    count
                    for count in sorted(starts)
                    if first <= count <= last
                    and all(_implementation_at(outer, count) == NATIVE for outer in around)
                ],
            )


def _outer_paths(path: str) -> Iterator[str]:
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def _ranges(pieces: Sequence[OpPiece]) -> Iterator[tuple[int, float, str]]:
    """First and last token count of each piece, and what runs there."""
    first = 1
    for piece in pieces:
        yield first, inf if piece.up_to is None else piece.up_to, piece.implementation
        first = (piece.up_to or 0) + 1


def _implementation_at(pieces: Sequence[OpPiece], count: int) -> str:
    return next(name for _, last, name in _ranges(pieces) if count <= last)
