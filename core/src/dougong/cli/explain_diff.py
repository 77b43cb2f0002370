"""A plan beside another one: a saved one, that of a device on file, or that of another platform."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from dougong.cli.explain_text import counted, line
from dougong.describe.capability_file import FORMAT
from dougong.errors import ConfigError
from dougong.planner import ExecutionPlan
from dougong.planner.compare import Difference, differences
from dougong.planner.record import plan_from_json

Planner = Callable[[Mapping[str, Any], Path | None], ExecutionPlan]
"""Plans with some options changed, for the device of a capability file or for the one here."""

_LEAST_WIDTH = 12


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two plans.

    Attributes:
        here: The plan that was asked for.
        other: What it is held against.
        name: Of the other, as the user wrote it.
        kind: What the other is: ``"saved plan"``, ``"capability file"`` or ``"platform"``.
        found: What differs, the other's values as the old ones.
    """

    here: ExecutionPlan
    other: ExecutionPlan
    name: str
    kind: str
    found: tuple[Difference, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "model": self.here.model,
            "platform": self.here.platform,
            "other": {
                "name": self.name,
                "kind": self.kind,
                "model": self.other.model,
                "platform": self.other.platform,
            },
            "differences": [
                {"field": one.field, "here": one.new, "other": one.old, "why": one.why}
                for one in self.found
            ],
        }


def compare(here: ExecutionPlan, name: str, plan: Planner) -> Comparison:
    """Find out what the other is, plan it where it is no plan yet, and compare.

    Raises:
        ConfigError: There is no such file or platform, or no plan for it.
    """
    kind, other = _other(name, plan)
    return Comparison(here, other, name, kind, tuple(differences(other, here)))


def print_comparison(comparison: Comparison) -> None:
    """Print what differs, side by side, to the standard output."""
    console = Console(highlight=False)
    here, other = comparison.here, comparison.other
    number = counted(len(comparison.found), "difference") if comparison.found else "no difference"
    console.print(line((f"{here.model}: {number}", "bold")))
    left = f"here: {here.platform}"
    right = f"{comparison.kind} {comparison.name}: {other.platform}"
    if other.model != here.model:
        right += f", of {other.model}"
    console.print(SideBySide(left, right, style="bold"))
    for one in comparison.found:
        console.print(line(one.field))
        console.print(SideBySide(_shown(one.new), _shown(one.old)))
        if one.why:
            console.print(line(f"  why: {one.why}", indent=4))


def _other(name: str, plan: Planner) -> tuple[str, ExecutionPlan]:
    file = Path(name)
    if file.is_file():
        text = _read(file)
        if not _is_capability_file(text):
            return "saved plan", _saved(name, text)
        changes: dict[str, Any] = {"platform": None, "devices": None, "plan": None}
        return "capability file", _planned(name, lambda: plan(changes, file))
    if file.suffix or os.sep in name:
        raise ConfigError(
            f"--diff {name}: there is no such file. Name a file of `explain --save` or of "
            "`capabilities --json`, or a platform that `dougong doctor` lists."
        )
    changes = {"platform": name, "devices": None, "plan": None}
    return "platform", _planned(name, lambda: plan(changes, None))


def _planned(name: str, make: Callable[[], ExecutionPlan]) -> ExecutionPlan:
    try:
        return make()
    except ConfigError as error:
        raise ConfigError(f"--diff {name}: there is no plan to compare with. {error}") from error


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--diff {file} cannot be read: {error}.") from error


def _saved(name: str, text: str) -> ExecutionPlan:
    try:
        return plan_from_json(text)
    except ConfigError as error:
        first = str(error).partition("\n")[0]
        raise ConfigError(f"--diff {name}: {first}", error.problems) from error


def _is_capability_file(text: str) -> bool:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):  # whose reader says more of it
        return False
    return isinstance(content, dict) and content.get("format") == FORMAT


def _shown(value: object) -> str:
    return "(nothing)" if value is None or value == "" else str(value)


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Two texts in columns of one width; what is too long goes on below."""

    left: str
    right: str
    style: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Line by line, without blanks at the end."""
        width = max(_LEAST_WIDTH, (options.max_width - 5) // 2)
        columns = [
            [part.plain.rstrip() for part in Text(text).wrap(console, width, overflow="fold")]
            for text in (self.left, self.right)
        ]
        for left, right in zip_longest(*columns, fillvalue=""):
            yield Text(f"  {left:<{width}} | {right}".rstrip(), self.style)
