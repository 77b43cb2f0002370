"""Which implementation runs at which number of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dougong.contracts import OpPiece, TokenRange, token_bounds
from dougong.contracts.rank_plan import NATIVE


@dataclass(frozen=True, slots=True)
class Claimant:
    """An implementation that may run, at some numbers of tokens.

    Attributes:
        name: Of the implementation.
        tokens: Numbers of tokens it is meant for; ``None``: any.
    """

    name: str
    tokens: TokenRange | None = None

    def takes(self, num_tokens: int) -> bool:
        """Whether it is meant for a step of ``num_tokens``."""
        least, most = token_bounds(self.tokens)
        return least <= num_tokens and (most is None or num_tokens <= most)

    def overlaps(self, name: str, pieces: Sequence[OpPiece], max_num_tokens: int) -> bool:
        """Whether it is meant for a number of tokens at which ``name`` runs."""
        least, most = token_bounds(self.tokens)
        for piece, first in with_starts(pieces):
            last = max_num_tokens if piece.up_to is None else piece.up_to
            is_common = max(first, least) <= min(last, last if most is None else most)
            if piece.implementation == name and is_common:
                return True
        return False

    def is_reached(self, max_num_tokens: int) -> bool:
        """Whether any step is one it is meant for."""
        least, most = token_bounds(self.tokens)
        return least <= max_num_tokens and (most is None or most >= 1)


def build_pieces(claimants: Sequence[Claimant], max_num_tokens: int) -> tuple[OpPiece, ...]:
    """Who runs from 1 token on; the first claimant that takes a number has it, else native.

    Returns:
        Ascending, neighbours that differ; the last has no bound.
    """
    starts = {1}
    for claimant in claimants:
        least, most = token_bounds(claimant.tokens)
        starts |= {max(1, least)} | (set() if most is None else {most + 1})
    ordered = sorted(start for start in starts if 1 <= start <= max_num_tokens)
    runs: list[tuple[str, int]] = []
    for start in ordered:
        name = next((one.name for one in claimants if one.takes(start)), NATIVE)
        if not runs or runs[-1][0] != name:
            runs.append((name, start))
    ends = [start - 1 for _, start in runs[1:]]
    return tuple(OpPiece(name, end) for (name, _), end in zip(runs, [*ends, None], strict=True))


def describe_range(name: str, pieces: Sequence[OpPiece]) -> str:
    """Numbers of tokens at which an implementation runs; empty: at none."""
    return ", ".join(
        f"{first} and more" if piece.up_to is None else f"{first} to {piece.up_to}"
        for piece, first in with_starts(pieces)
        if piece.implementation == name
    )


def describe_pieces(pieces: Sequence[OpPiece]) -> str:
    """What runs, with the numbers of tokens: ``"a/small up to 1 token, native above"``."""
    return ", ".join(_describe(piece, first) for piece, first in with_starts(pieces))


def with_starts(pieces: Sequence[OpPiece]) -> Iterator[tuple[OpPiece, int]]:
    """Each with the smallest number of tokens that it runs for."""
    first = 1
    for piece in pieces:
        yield piece, first
        first = (piece.up_to or 0) + 1


def _describe(piece: OpPiece, first: int) -> str:
    if piece.up_to is None:
        return f"{piece.implementation} above" if first > 1 else piece.implementation
    return f"{piece.implementation} up to {piece.up_to:,} token{'' if piece.up_to == 1 else 's'}"
