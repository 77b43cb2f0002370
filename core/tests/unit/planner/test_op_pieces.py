from __future__ import annotations

import pytest

from dougong.contracts import AtLeast, AtMost, Between, OpPiece, TokenRange
from dougong.planner.op_pieces import Claimant, build_pieces, describe_pieces, describe_range


def pieces(
    *claimants: tuple[str, TokenRange | None], most: int = 100
) -> list[tuple[str, int | None]]:
    built = build_pieces([Claimant(*one) for one in claimants], most)
    return [(piece.implementation, piece.up_to) for piece in built]


@pytest.mark.parametrize(
    ("claimants", "expected"),
    [
        ([], [("native", None)]),
        ([("x", None)], [("x", None)]),
        ([("x", AtMost(8))], [("x", 8), ("native", None)]),
        ([("x", AtLeast(9))], [("native", 8), ("x", None)]),
        ([("x", Between(4, 8))], [("native", 3), ("x", 8), ("native", None)]),
        ([("x", AtMost(8)), ("y", None)], [("x", 8), ("y", None)]),
        ([("x", AtMost(8)), ("y", AtMost(16))], [("x", 8), ("y", 16), ("native", None)]),
        ([("x", Between(4, 8)), ("y", AtMost(6))], [("y", 3), ("x", 8), ("native", None)]),
        ([("x", None), ("y", AtMost(6))], [("x", None)]),
        ([("x", AtMost(8)), ("x", AtLeast(9))], [("x", None)]),
        ([("x", AtMost(100))], [("x", None)]),
        ([("x", AtMost(99))], [("x", 99), ("native", None)]),
        ([("x", AtLeast(101))], [("native", None)]),
        ([("x", AtMost(0))], [("native", None)]),
    ],
)
def test_each_number_of_tokens_goes_to_the_first_that_is_meant_for_it(
    claimants: list[tuple[str, TokenRange | None]], expected: list[tuple[str, int | None]]
) -> None:
    assert pieces(*claimants) == expected


def test_where_an_implementation_runs_is_told_in_words() -> None:
    built = (OpPiece("x", 8), OpPiece("native", 16), OpPiece("x"))
    assert describe_range("x", built) == "1 to 8, 17 and more"
    assert describe_range("native", built) == "9 to 16"
    assert describe_range("y", built) == ""


def test_pieces_are_told_from_the_smallest_number_of_tokens() -> None:
    pieces = (OpPiece("a/small", 1), OpPiece("a/big", 4096), OpPiece("native"))
    assert describe_pieces(pieces) == (
        "a/small up to 1 token, a/big up to 4,096 tokens, native above"
    )
    assert describe_pieces(pieces[-1:]) == "native"
