"""Two plans' ops and who brought what runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dougong.contracts import OpPiece
from dougong.contracts.rank_plan import NATIVE
from dougong.planner.difference import Difference, changed, reasons_by_name
from dougong.planner.execution_plan import ExecutionPlan, OpPlan, PassedOver
from dougong.planner.op_pieces import describe_pieces


@dataclass(frozen=True, slots=True)
class _Place:
    """An op at one place, as far as it is compared."""

    key: str
    pieces: tuple[OpPiece, ...]
    inside: str
    passed_over: tuple[PassedOver, ...]


def compare_ops(old: ExecutionPlan, new: ExecutionPlan) -> Iterator[Difference]:
    """Places whose op or implementation changed in the same way, together."""
    before, after = _by_path(old.ops), _by_path(new.ops)
    groups: dict[tuple[str, str, str, str], int] = {}
    for path in dict.fromkeys((*before, *after)):
        was, now = before.get(path), after.get(path)
        keys = dict.fromkeys(place.key for place in (was, now) if place is not None)
        was_words, now_words = (_words(place, len(keys) > 1) for place in (was, now))
        if was_words != now_words:
            group = (" and ".join(keys), was_words, now_words, _why(was, now))
            groups[group] = groups.get(group, 0) + 1
    for (key, was_words, now_words, why), count in groups.items():
        places = f"{count} place{'s' if count > 1 else ''}"
        yield Difference(f"op {key} ({places})", was_words, now_words, why)


def compare_wheels(old: ExecutionPlan, new: ExecutionPlan) -> Iterator[Difference]:
    """Who brought what runs, and the kernel libraries where both plans know them."""
    running = [name for names in new.implementations().values() for name in names]
    for name in dict.fromkeys(running):
        if name != NATIVE and name in old.origins:
            yield from changed(f"wheel of {name}", old.origins[name], new.origins.get(name))
    if old.kernels_loaded is not None and new.kernels_loaded is not None:
        was, now = tuple(sorted(old.kernels_loaded)), tuple(sorted(new.kernels_loaded))
        why = "; ".join(f"{name}: {reason}" for name, reason in new.kernels_missing.items())
        yield from changed("kernel libraries", was, now, why)


def _by_path(plans: Sequence[OpPlan]) -> dict[str, _Place]:
    return {
        path: _Place(plan.key, plan.assignment.pieces, plan.inside, plan.passed_over)
        for plan in plans
        for path in plan.assignment.paths
    }


def _words(place: _Place | None, with_key: bool) -> str:
    if place is None:
        return "not in the model"
    key = f"{place.key}: " if with_key else ""
    if place.inside:
        return f"{key}done by {place.inside}"
    return key + describe_pieces(place.pieces)


def _why(was: _Place | None, now: _Place | None) -> str:
    """What the new plan says of the implementations that ran."""
    if was is None or now is None:
        return ""
    reasons = reasons_by_name(now.passed_over)
    ran = dict.fromkeys(piece.implementation for piece in was.pieces)
    return "; ".join(f"{name}: {reasons[name]}" for name in ran if name in reasons)
