"""Which step sizes are captured: few enough to capture soon, close enough to waste little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dougong.contracts import GraphAssignment, GraphLevel

LARGEST = 512
"""No step above it is captured by itself: there the device works longer than the host launches."""
SMALLEST_BESIDE_DECODE = 8
"""Where whole decode steps are captured, a step of another kind is not worth a smaller graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphLimits:
    """What bounds the sizes.

    Attributes:
        max_num_seqs: Sequences in a step.
        max_num_tokens: Tokens in a step.
        num_pieces: Graphs of one step that is captured in pieces.
        max_graphs: On the device at once; ``None``: no limit.
        max_whole_graphs: That hold attention; ``None``: no limit.
        sizes: Token counts that the device captures; empty: any.
        whole_sizes: Token counts that device and attention capture; ``None``: any.
    """

    max_num_seqs: int
    max_num_tokens: int
    num_pieces: int
    max_graphs: int | None = None
    max_whole_graphs: int | None = None
    sizes: tuple[int, ...] = ()
    whole_sizes: tuple[int, ...] | None = None


def choose_sizes(level: GraphLevel, limits: GraphLimits) -> GraphAssignment:
    """Sizes for a level, where nobody asked for any: each about twice the one before.

    Where fewer graphs may exist, sizes between the smallest and the largest are left out, and
    whole decode steps go before the others.
    """
    left = limits.max_graphs
    decode: tuple[int, ...] = ()
    if level is not GraphLevel.PIECEWISE:
        most = _least(left, limits.max_whole_graphs)
        decode = _thinned(_sizes(1, limits.max_num_seqs, limits.whole_sizes), most)
        left = None if left is None else left - len(decode)
    if level is GraphLevel.FULL:
        most = _least(left, limits.max_whole_graphs, less=len(decode))
        full = _sizes(SMALLEST_BESIDE_DECODE, limits.max_num_tokens, limits.whole_sizes)
        return GraphAssignment(decode=decode, full=_thinned(full, most))
    first = SMALLEST_BESIDE_DECODE if decode else 1
    most = None if left is None else left // limits.num_pieces
    stated = limits.sizes or None
    return GraphAssignment(
        decode=decode,
        piecewise=_thinned(_sizes(first, limits.max_num_tokens, stated), most),
    )


def asked_sizes(
    level: GraphLevel, asked: tuple[int, ...], limits: GraphLimits
) -> tuple[GraphAssignment, tuple[str, ...]]:
    """Sizes that the user gave, each kind of graph as far as steps of it can be so large.

    Returns:
        The sizes, and what is wrong with them: nothing is left out of what was asked for.
    """
    decode: tuple[int, ...] = ()
    if level is not GraphLevel.PIECEWISE:
        decode = tuple(size for size in asked if size <= limits.max_num_seqs)
    is_full = level is GraphLevel.FULL
    made = GraphAssignment(
        decode=decode,
        full=asked if is_full else (),
        piecewise=() if is_full else asked,
        may_drop=False,
    )
    return made, tuple(_problems(level, made, limits))


def _problems(level: GraphLevel, made: GraphAssignment, limits: GraphLimits) -> Sequence[str]:
    problems = []
    if level is not GraphLevel.PIECEWISE and not made.decode:
        problems.append(
            f"none is a decode step, which has at most max_num_seqs={limits.max_num_seqs} tokens; "
            "add smaller sizes, or use --graph-level piecewise"
        )
    whole = (*made.decode, *made.full)
    stated = (
        (whole, limits.whole_sizes, "device and attention capture"),
        (made.piecewise, limits.sizes or None, "the device captures"),
    )
    for sizes, possible, who in stated:
        other = sorted({size for size in sizes if possible is not None and size not in possible})
        if other:
            problems.append(f"{who} {_listed(possible or ())}, and not {_listed(other)}")
    num_graphs = len(whole) + len(made.piecewise) * limits.num_pieces
    for count, most, what in (
        (num_graphs, limits.max_graphs, "graphs"),
        (len(whole), limits.max_whole_graphs, "graphs with attention"),
    ):
        if most is not None and count > most:
            problems.append(f"that makes {count} {what}, and {most} may exist; give fewer sizes")
    return problems


def _sizes(first: int, limit: int, stated: tuple[int, ...] | None) -> tuple[int, ...]:
    """Twice the one before, the largest step last; of stated ones the next larger each time."""
    limit = min(limit, LARGEST)
    wanted = [limit]
    size = first
    while size < limit:
        wanted.append(size)
        size *= 2
    if stated is None:
        return tuple(sorted(wanted))
    possible = sorted(size for size in stated if size <= limit)
    nearest = {next((one for one in possible if one >= size), None) for size in wanted}
    return tuple(sorted({one for one in nearest if one is not None} | set(possible[-1:])))


def _thinned(sizes: tuple[int, ...], most: int | None) -> tuple[int, ...]:
    """As many as may be, spread evenly, the largest in any case."""
    if most is None or len(sizes) <= most:
        return sizes
    if most <= 0:
        return ()
    if most == 1:
        return sizes[-1:]
    last = len(sizes) - 1
    return tuple(sizes[index * last // (most - 1)] for index in range(most))


def _least(*limits: int | None, less: int = 0) -> int | None:
    """The smallest limit; ``less`` is taken from the last one, which counts what is there."""
    *first, last = limits
    known = [one for one in (*first, None if last is None else last - less) if one is not None]
    return min(known, default=None)


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes))
