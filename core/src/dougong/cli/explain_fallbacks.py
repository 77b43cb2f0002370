"""The fallbacks of a plan for people: what, why, and what it costs."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable

from rich.tree import Tree

from dougong.cli.explain_text import entry, line
from dougong.planner import ExecutionPlan, Fallback


def fallbacks_tree(plan: ExecutionPlan) -> Tree:
    """Those of one level and reason together."""
    if not plan.fallbacks:
        return Tree(entry("fallbacks:", ("none", "green")))
    tree = Tree(entry("fallbacks:", _summary(plan.fallbacks)))
    bare = _bare_reasons(plan)
    by_reason: dict[tuple[str, str], list[Fallback]] = {}
    for one in plan.fallbacks:
        by_reason.setdefault((one.level, bare.get(one.reason, one.reason)), []).append(one)
    for (_, reason), some in by_reason.items():
        branch = tree.add(line((_subjects(some), "yellow"), f": {reason}"))
        hints: dict[str, list[Fallback]] = {}
        for one in some:
            hints.setdefault(one.cost_hint or "unknown", []).append(one)
        for hint, of in hints.items():
            whose = "" if len(of) == len(some) else f"{_subjects(of)}: "
            branch.add(entry("cost:", f"{whose}{hint}"))
    return tree


def _summary(fallbacks: Iterable[Fallback]) -> str:
    counts = Counter(str(one.level) for one in fallbacks)
    levels = (f"{count} {level}" if len(counts) > 1 else level for level, count in counts.items())
    total = f"{counts.total()} ({', '.join(levels)})"
    return f"{total}; something more general runs than was there"


def _bare_reasons(plan: ExecutionPlan) -> dict[str, str]:
    """``NAME: reason`` of each implementation passed over → the reason, as others may have it."""
    passed_over = (one for op in plan.ops for one in op.passed_over)
    return {f"{one.name}: {one.reason}": one.reason for one in passed_over}


def _subjects(fallbacks: Iterable[Fallback]) -> str:
    """``ops linear, rms_norm`` for ``op linear`` and ``op rms_norm``."""
    some = list(fallbacks)
    subjects = [one.subject for one in some]
    names = [one.subject.removeprefix(f"{one.level} ") for one in some]
    if len(names) > 1 and all(map(operator.ne, names, subjects)):
        return f"{some[0].level}s {', '.join(names)}"
    return ", ".join(subjects)
