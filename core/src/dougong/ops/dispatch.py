"""What a call of an op runs: straight calls with a fixed number of arguments.

Each is compiled for its number of arguments: packing and unpacking them as ``*args`` costs as much
as the call itself, and a model makes hundreds in a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any


@dataclass(frozen=True, slots=True)
class BoundPiece:
    """An implementation made for one op.

    Attributes:
        implementation: Its name.
        call: Takes the op's own arguments.
        up_to: Most tokens it is for; ``None``: no bound.
        mutates: Arguments of the op that it may overwrite.
    """

    implementation: str
    call: Callable[..., Any]
    up_to: int | None = None
    mutates: tuple[str, ...] = ()


def with_extra(
    function: Callable[..., Any], extra: Sequence[Any], num_args: int | None
) -> Callable[..., Any]:
    """``function`` called with an op's arguments and then ``extra``.

    Args:
        function: A functional kernel.
        extra: Weights and constants of one op.
        num_args: How many arguments the op takes; ``None``: it varies.
    """
    if not extra:
        return function
    names = {f"extra{index}": value for index, value in enumerate(extra)}
    args = _args(num_args)
    code = f"lambda {args}: function({args}, {', '.join(names)})"
    return _compiled(code, {"function": function, **names})


def by_tokens(pieces: Sequence[BoundPiece], num_args: int | None) -> Callable[..., Any]:
    """The piece for the rows of the first argument: one compare between two, a bisection of more.

    Args:
        pieces: Ascending; the last has no bound.
        num_args: How many arguments the op takes; ``None``: it varies.
    """
    if len(pieces) == 1:
        return pieces[0].call
    names: dict[str, Any] = {}
    for index, piece in enumerate(pieces):
        names |= {f"call{index}": piece.call, f"limit{index}": piece.up_to}
    args = _args(num_args)
    rows = "args[0].shape[0]" if num_args is None else "a0.shape[0]"
    choice = _bisection(0, len(pieces) - 1, args, f"(rows := {rows})")
    return _compiled(f"lambda {args}: {choice}", names)


def _bisection(low: int, high: int, args: str, rows: str) -> str:
    """An expression that calls one of the pieces ``low`` to ``high``."""
    if low == high:
        return f"call{low}({args})"
    middle = (low + high) // 2
    first = _bisection(low, middle, args, "rows")
    second = _bisection(middle + 1, high, args, "rows")
    return f"({first} if {rows} <= limit{middle} else {second})"


def _args(num_args: int | None) -> str:
    return "*args" if num_args is None else ", ".join(f"a{index}" for index in range(num_args))


def _compiled(code: str, names: dict[str, Any]) -> Callable[..., Any]:
    """A function from ``code``, which is made of this module's own words and numbers alone."""
    function: Callable[..., Any] = eval(_code_object(code), names)
    return function


@lru_cache
def _code_object(code: str) -> CodeType:
    return compile(code, "<op call>", "eval")
