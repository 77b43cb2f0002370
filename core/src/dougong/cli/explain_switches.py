"""The effective table of op switches: what ``--custom-ops`` and ``--op`` come to."""

from __future__ import annotations

from collections.abc import Iterator

from dougong.cli.explain_ops import ops_by_key, ways_of
from dougong.cli.explain_text import Hanging, line
from dougong.config.op_switches import OpSwitches, parse_op_switches
from dougong.planner import ExecutionPlan

_MOST_INDENT = 40  # a column must keep room for its words


def switch_lines(plan: ExecutionPlan) -> Iterator[Hanging]:
    """Every op with the switch that holds for it and what that comes to, in columns."""
    switches = switches_of(plan)
    rows = [("op", "switch", "runs")]
    for key, ops in ops_by_key(plan.ops).items():
        runs = "; ".join(f"{len(way.paths)} x {way.text}{way.author_text}" for way in ways_of(ops))
        rows.append((key, switch_of(switches, key), runs))
    first, second = (max(len(row[column]) for row in rows) + 2 for column in (0, 1))
    indent = min(first + second, _MOST_INDENT)
    for number, (key, switch, runs) in enumerate(rows):
        style = "bold" if number == 0 else ""
        yield line((f"{key:<{first}}{switch:<{second}}{runs}", style), indent=indent)


def switches_of(plan: ExecutionPlan) -> OpSwitches:
    """What the user said of ops; the plan's own record of it was checked when it was made."""
    custom_ops = plan.choices.get("custom_ops")
    chosen = str(plan.choices.get("op", ""))
    return parse_op_switches(
        None if custom_ops is None else str(custom_ops),
        chosen.split(",") if chosen else (),
        known=None,
    )


def switch_of(switches: OpSwitches, key: str) -> str:
    """Which part of ``--custom-ops`` and ``--op`` holds for an op, in words."""
    if key in switches.implementations:
        return "asked for (--op)"
    if key in switches.required:
        return "required (+)"
    if key in switches.off:
        return "off (-)"
    return "on" if switches.is_on else "off (none)"
