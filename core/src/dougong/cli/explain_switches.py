"""The effective table of op switches: what ``--custom-ops`` and ``--op`` come to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dougong.cli.explain_ops import ops_by_key, ways_of
from dougong.cli.explain_text import Hanging, line
from dougong.planner import ExecutionPlan

_MOST_INDENT = 40  # a column must keep room for its words


def switch_lines(plan: ExecutionPlan) -> Iterator[Hanging]:
    """Every op with the switch that holds for it and what that comes to, in columns."""
    rows = [("op", "switch", "runs")]
    for key, ops in ops_by_key(plan.ops).items():
        runs = "; ".join(f"{len(way.paths)} x {way.text}{way.author_text}" for way in ways_of(ops))
        rows.append((key, switch_of(plan.choices, key), runs))
    first, second = (max(len(row[column]) for row in rows) + 2 for column in (0, 1))
    indent = min(first + second, _MOST_INDENT)
    for number, (key, switch, runs) in enumerate(rows):
        style = "bold" if number == 0 else ""
        yield line((f"{key:<{first}}{switch:<{second}}{runs}", style), indent=indent)


def switch_of(choices: Mapping[str, str | int | float | bool], key: str) -> str:
    """Which part of ``--custom-ops`` and ``--op`` holds for an op, in words."""
    asked = {part.partition("=")[0] for part in str(choices.get("op", "")).split(",")}
    words = [word.strip() for word in str(choices.get("custom_ops", "")).split(",")]
    if key in asked:
        return "asked for (--op)"
    if f"+{key}" in words:
        return "required (+)"
    if f"-{key}" in words:
        return "off (-)"
    return "off (none)" if "none" in words else "on"
