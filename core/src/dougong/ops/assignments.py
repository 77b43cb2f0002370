"""A plan held against the ops that were built: each assigned, once, to something that exists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dougong.contracts import OpAssignment, OpPiece, PluginError
from dougong.contracts.rank_plan import NATIVE
from dougong.ops.custom_op import CustomOp
from dougong.ops.implementation import Implementation
from dougong.ops.registry import OpRegistry

SAMPLER_PREFIX = "sampler."


@dataclass(frozen=True, slots=True)
class PlannedPiece:
    """What runs for one op at some token counts.

    Attributes:
        name: Of the implementation.
        implementation: ``None``: native.
        up_to: Most tokens; ``None``: no bound.
    """

    name: str
    implementation: Implementation | None
    up_to: int | None


def resolve_assignments(
    ops: Mapping[str, CustomOp],
    assignments: Iterable[OpAssignment],
    registry: OpRegistry,
    prefix: str,
) -> dict[str, tuple[PlannedPiece, ...]]:
    """Path → its pieces, for every one of ``ops``.

    Args:
        ops: Path in the plan → op.
        assignments: Of the whole plan.
        registry: Of this engine.
        prefix: Of the paths that belong to ``ops``; empty: all but the sampler's do.

    Raises:
        PluginError: The plan and what was built differ; every difference is listed. What lies
            below an op that was made of an out-of-tree class is that class's own and may differ.
    """
    problems: list[str] = []
    by_path: dict[str, OpAssignment] = {}
    for assignment in assignments:
        pieces = _piece_problems(assignment, registry)
        own = [path for path in assignment.paths if _belongs(path, prefix)]
        problems.extend(pieces if own else ())
        problems.extend(f"{path} is assigned twice" for path in own if path in by_path)
        by_path.update(dict.fromkeys(own, assignment))
    outer = [path for path, op in ops.items() if registry.is_out_of_tree(op)]
    for path, op in ops.items():
        told = list(_op_problems(path, op, by_path.get(path), registry))
        if told and _is_below(path, outer, prefix):
            by_path[path] = OpAssignment(key=op.key, paths=(path,), pieces=(OpPiece(NATIVE),))
        else:
            problems.extend(told)
    problems.extend(
        f"op {assignment.key} is assigned at {path}, where there is no op"
        for path, assignment in by_path.items()
        if path not in ops and not _is_below(path, outer, prefix)
    )
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in dict.fromkeys(problems))
        raise PluginError(
            "The plan does not fit what this process built. Every process must see the same model "
            f"and the same plugins:\n{listed}"
        )
    return {path: _pieces(by_path[path], registry) for path in ops}


def _belongs(path: str, prefix: str) -> bool:
    return path.startswith(prefix) if prefix else not path.startswith(SAMPLER_PREFIX)


def _is_below(path: str, outer: Iterable[str], prefix: str) -> bool:
    """Whether a path lies inside an op at one of ``outer``; at the top, that is the prefix."""
    return any(path != one and (one == prefix or path.startswith(f"{one}.")) for one in outer)


def _pieces(assignment: OpAssignment, registry: OpRegistry) -> tuple[PlannedPiece, ...]:
    return tuple(
        PlannedPiece(
            piece.implementation, registry.find(assignment.key, piece.implementation), piece.up_to
        )
        for piece in assignment.pieces
    )


def _piece_problems(assignment: OpAssignment, registry: OpRegistry) -> Iterator[str]:
    """Of the assignment itself, whatever it is for."""
    key = assignment.key
    for name in dict.fromkeys(piece.implementation for piece in assignment.pieces):
        if name != NATIVE and registry.find(key, name) is None:
            yield f"op {key} has no implementation {name!r} here"
    limits = [piece.up_to for piece in assignment.pieces]
    bounds = [limit for limit in limits[:-1] if limit is not None]
    is_ascending = bounds == sorted(set(bounds)) and len(bounds) == len(limits) - 1
    if not limits or limits[-1] is not None or not is_ascending:
        yield (
            f"op {key} is assigned by token counts {limits}; each is larger than the one before, "
            "and the last is None"
        )


def _op_problems(
    path: str, op: CustomOp, assignment: OpAssignment | None, registry: OpRegistry
) -> Iterator[str]:
    if assignment is None:
        yield f"op {op.key} at {path or 'the top'} is not assigned"
        return
    if assignment.key != op.key:
        yield f"op {assignment.key} is assigned at {path}, where {op.key} is"
        return
    for piece in assignment.pieces:
        found = registry.find(op.key, piece.implementation)
        if found and found.is_op_class and not isinstance(op, found.target):
            yield (
                f"op {op.key} at {path} is to run {piece.implementation} and was made of "
                f"{type(op).__qualname__}; build the model inside OpRegistry.overriding"
            )
