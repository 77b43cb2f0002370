"""A run as it is shown while it lasts: live on a terminal, as plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from dougong_conformance.outcomes import BAD, Outcome
from dougong_conformance.requirements import PROFILES
from dougong_conformance.runner.protocol import Told
from dougong_conformance.runner.selection import requirement_of

_PIPE_WIDTH = 160
_SHOWN_REASON = 300
_COLOURS: Mapping[str, str] = {"pass": "green", "not_claimed": "dim", "not_run": "yellow"}


def make_console(*, is_error: bool = False) -> Console:
    """Of the terminal; where there is none, lines need not be short."""
    console = Console(highlight=False, stderr=is_error)
    if console.is_terminal:
        return console
    return Console(highlight=False, width=_PIPE_WIDTH, stderr=is_error)


class Silent:
    """Shows nothing."""

    def event(self, event: dict[str, Any], told: Told) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing is open."""


class PlainLines:
    """One line per profile when it is done, and one per failure when it happens.

    Args:
        console: To print on.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._profile = ""
        self._began = time.monotonic()

    def event(self, event: dict[str, Any], told: Told) -> None:
        """Print what is worth a line."""
        name = event["event"]
        if name == "plan":
            self._console.print(f"{len(told.selected)} cases")
        elif name == "start":
            self._enter(profile_of(event["id"]), told)
        elif name == "end" and Outcome(event["end"]["outcome"]) in BAD:
            self._console.print(failure_line(event["end"]))
        elif name == "finding":
            self._console.print(finding_line(event))
        elif name in ("footer", "no_plugin"):
            self._enter("", told)

    def close(self) -> None:
        """Nothing is open."""

    def _enter(self, profile: str, told: Told) -> None:
        if profile == self._profile:
            return
        if self._profile:
            took = time.monotonic() - self._began
            counts = count_outcomes(self._profile, told)
            self._console.print(f"{self._profile:<14} {counts_text(counts)}  ({took:.1f} s)")
        self._profile, self._began = profile, time.monotonic()


class LiveLines:
    """A progress bar, and a line per profile that changes while it runs.

    Args:
        console: A terminal.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description:<34.34}", style="bold", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        self._task = self._progress.add_task("loading the plugin", total=None)
        self._told = Told()
        self._live = Live(console=console, get_renderable=self._view, refresh_per_second=8)
        self._live.start()

    def event(self, event: dict[str, Any], told: Told) -> None:
        """Redraw; a failure is printed above."""
        self._told = told
        match event["event"]:
            case "plan":
                self._progress.update(self._task, total=len(told.selected))
            case "start":
                self._progress.update(self._task, description=event["id"])
            case "end":
                self._progress.advance(self._task)
                if Outcome(event["end"]["outcome"]) in BAD:
                    self._console.print(failure_line(event["end"]))
            case "finding":
                self._console.print(finding_line(event))
            case "searched":
                self._progress.update(self._task, description=f"searched {told.searched} seeds")

    def close(self) -> None:
        """Leave the last view standing."""
        self._live.stop()

    def _view(self) -> Table:
        grid = Table.grid(padding=(0, 2))
        for profile in PROFILES:
            counts = count_outcomes(profile, self._told)
            if counts:
                grid.add_row(profile, counts_markup(counts))
        outer = Table.grid()
        outer.add_row(grid)
        outer.add_row(self._progress)
        return outer


Watching = Silent | PlainLines | LiveLines


def watch(console: Console, *, is_quiet: bool) -> Watching:
    """The way that suits the console."""
    if is_quiet:
        return Silent()
    return LiveLines(console) if console.is_terminal else PlainLines(console)


def profile_of(id: str) -> str:
    """``"ops"`` of ``"ops.rms_norm[float32]"``."""
    return requirement_of(id).partition(".")[0]


def count_outcomes(profile: str, told: Told) -> dict[str, int]:
    """Outcomes of a profile's cases so far."""
    return dict(Counter(end.outcome.value for end in told.ends if profile_of(end.id) == profile))


def counts_text(counts: Mapping[str, int]) -> str:
    """``"12 pass, 1 fail"``."""
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in _in_order(counts))


def counts_markup(counts: Mapping[str, int]) -> str:
    """As `counts_text`, coloured."""
    return ", ".join(
        f"[{_COLOURS.get(name, 'bold red')}]{count} {name.replace('_', ' ')}[/]"
        for name, count in _in_order(counts)
    )


def _in_order(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(one.value, counts[one.value]) for one in Outcome if counts.get(one.value)]


def finding_line(event: Mapping[str, Any]) -> str:
    """What a further seed found."""
    return f"[yellow]seed {event['seed']}[/] {failure_line(event['end'])}"


def failure_line(end: Mapping[str, Any]) -> str:
    """One failure, in the markup of rich."""
    reason = str(end["reason"]).replace("\n", " ")[:_SHOWN_REASON]
    word = str(end["outcome"]).upper().replace("_", " ")
    return f"[bold red]✗ {word}[/] {escape(str(end['id']))}: {escape(reason)}"
