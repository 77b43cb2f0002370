"""The ops of a plan for people: what runs where, what was passed over, which switch said so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.tree import Tree

from dougong.cli.explain_text import Hanging, entry, line, places
from dougong.config.decision import USER
from dougong.contracts import OpPiece
from dougong.contracts.rank_plan import NATIVE
from dougong.planner import ExecutionPlan, OpPlan
from dougong.planner.op_pieces import describe_pieces


@dataclass(frozen=True, slots=True)
class Way:
    """Ops of one key that run alike.

    Attributes:
        pieces: What runs, by token count.
        inside: The fused slot that does their work; empty: they run.
        author: Who chose.
        paths: Where.
    """

    pieces: tuple[OpPiece, ...]
    inside: str
    author: str
    paths: tuple[str, ...]

    @property
    def text(self) -> str:
        """What runs."""
        return f"done inside {self.inside}" if self.inside else describe_pieces(self.pieces)

    @property
    def author_text(self) -> str:
        """Who wanted it so, where that is the user."""
        return ", as the user asked" if self.author == USER and not self.inside else ""


def ops_tree(plan: ExecutionPlan) -> Tree:
    """Every op of model and sampler."""
    by_key = ops_by_key(plan.ops)
    ways = {key: ways_of(ops) for key, ops in by_key.items()}
    reasons = _reasons(by_key)
    tree = Tree(entry("ops:", _summary(plan.ops)))
    widths = max(map(len, by_key), default=0), len(str(max(map(_count, ways.values()), default=0)))
    for key, some in ways.items():
        branch = tree.add(_key_line(plan, key, some, widths))
        if len(some) > 1:
            for way in some:
                branch.add(_way_line(plan, way))
        for reason, where in reasons.items():
            if where.keys() == {key}:
                for names, at in _alike(where[key], by_key[key]):
                    branch.add(line((f"{names} passed over", "bold"), f"{at}: {reason}"))
    for reason, where in reasons.items():
        if len(where) > 1:
            _add_shared(tree, reason, where, by_key)
    return tree


def ops_by_key(ops: Iterable[OpPlan]) -> dict[str, list[OpPlan]]:
    """Ops of one key together, in the order of the model."""
    found: dict[str, list[OpPlan]] = {}
    for op in ops:
        found.setdefault(op.key, []).append(op)
    return found


def ways_of(ops: Iterable[OpPlan]) -> list[Way]:
    """Ops of one key by what runs, the most frequent first."""
    found: dict[tuple[tuple[OpPiece, ...], str, str], list[str]] = {}
    for op in ops:
        kind = (op.assignment.pieces, op.inside, op.author)
        found.setdefault(kind, []).extend(op.assignment.paths)
    ways = [Way(*kind, tuple(paths)) for kind, paths in found.items()]
    return sorted(ways, key=lambda way: -len(way.paths))


def origins_text(plan: ExecutionPlan, pieces: Iterable[OpPiece]) -> str:
    """The wheels that brought what runs, in brackets; empty: the core's own plain torch."""
    origins = [plan.origins.get(piece.implementation) for piece in pieces]
    known = dict.fromkeys(origin for origin in origins if origin)
    return f" ({', '.join(known)})" if known else ""


def _count(ways: Iterable[Way]) -> int:
    return sum(len(way.paths) for way in ways)


def _summary(ops: Sequence[OpPlan]) -> str:
    running = [op for op in ops if not op.inside]
    total = sum(op.count for op in running)
    native = sum(op.count for op in running if op.is_native)
    text = f"{total - native} of {total} run a registered implementation"
    return f"{text}, {native} native (plain torch)"


def _key_line(
    plan: ExecutionPlan, key: str, ways: Sequence[Way], widths: tuple[int, int]
) -> Hanging:
    head = f"{key:<{widths[0]}}  {_count(ways):>{widths[1]}}  "
    if len(ways) > 1:
        return line((head, "bold"), f"in {len(ways)} ways")
    (way,) = ways
    return line((head, "bold"), *_way_parts(plan, way))


def _way_line(plan: ExecutionPlan, way: Way) -> Hanging:
    return line(f"{len(way.paths)} x ", *_way_parts(plan, way), f": {places(way.paths)}")


def _way_parts(plan: ExecutionPlan, way: Way) -> tuple[str | tuple[str, str], ...]:
    return (way.text, _style(way)), origins_text(plan, way.pieces), way.author_text


def _style(way: Way) -> str:
    is_native = all(piece.implementation == NATIVE for piece in way.pieces)
    return "" if way.inside or is_native else "green"


_Reasons = dict[str, dict[str, dict[str, list[str]]]]
"""Reason → op → candidate → paths."""


def _reasons(by_key: Mapping[str, Sequence[OpPlan]]) -> _Reasons:
    found: _Reasons = {}
    for key, ops in by_key.items():
        for op in ops:
            for one in op.passed_over:
                at = found.setdefault(one.reason, {}).setdefault(key, {})
                at.setdefault(one.name, []).extend(op.assignment.paths)
    return found


def _alike(
    candidates: Mapping[str, Sequence[str]], ops: Sequence[OpPlan]
) -> Iterator[tuple[str, str]]:
    """Candidates of one op that are passed over at the same places, and where."""
    names_at: dict[tuple[str, ...], list[str]] = {}
    for name, paths in candidates.items():
        names_at.setdefault(tuple(paths), []).append(name)
    everywhere = sum(op.count for op in ops)
    for paths, names in names_at.items():
        at = "" if len(paths) == everywhere else f" at {places(paths)}"
        yield ", ".join(names), at


def _add_shared(
    tree: Tree,
    reason: str,
    where: Mapping[str, Mapping[str, Sequence[str]]],
    by_key: Mapping[str, Sequence[OpPlan]],
) -> None:
    """One reason that several ops have, with all it concerns."""
    branch = tree.add(line(("passed over", "bold"), f": {reason}"))
    for key, candidates in where.items():
        for names, at in _alike(candidates, by_key[key]):
            branch.add(line(f"{names} for {key}{at}"))
