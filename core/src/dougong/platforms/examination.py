"""Would the plugins that were not chosen load? Tried in a short-lived child, never here."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from concurrent.futures import Future
from typing import Any

from dougong.log import get_logger
from dougong.platforms.discovery import discover
from dougong.platforms.hooks import PluginHooks
from dougong.platforms.loading import instantiate, judged
from dougong.platforms.probing import PROCESS_PROBES, ProbeCache
from dougong.platforms.short_lived import ChildFailed, answer_parent, ask_child
from dougong.platforms.table import CPU, PluginRow, PluginTable, Verdict

START_LIMIT_S = 5.0  # a start waits no longer than this for plugins that it does not use
PATIENT_LIMIT_S = 60.0  # somebody asked for the verdicts themselves
_HANGS_S = 10.0  # a plugin that was alone and took longer does hang
_Found = dict[str, tuple[Verdict, str, str]]

_log = get_logger(__name__)


def unknown_names(table: PluginTable, skips: Collection[str] = (CPU,)) -> list[str]:
    """Names of the plugins that could run here and that nobody has loaded."""
    rows = (row for row in table.rows if row.verdict is Verdict.AVAILABLE)
    return sorted({row.name for row in rows if row.name not in skips})


def examine_in_background(
    table: PluginTable, limit_s: float = START_LIMIT_S
) -> Future[PluginTable] | None:
    """`examine_rest` beside a start; done after ``limit_s`` at the latest, ``None``: needless.

    A program that ends meanwhile does not wait for it.
    """
    if not unknown_names(table):
        return None
    done: Future[PluginTable] = Future()

    def examine() -> None:
        try:
            done.set_result(examine_rest(table, limit_s=limit_s))
        except Exception as exc:  # noqa: BLE001 - a table without these verdicts is no failed start
            _log.warning("plugins that were not chosen could not be tried: %s", exc)
            done.set_result(table)

    # No executor: the interpreter waits for its threads at exit, whatever they do.
    threading.Thread(target=examine, name="dougong-examination", daemon=True).start()
    return done


def examine_rest(
    table: PluginTable,
    probes: ProbeCache | None = None,
    skips: Collection[str] = (CPU,),
    *,
    limit_s: float = PATIENT_LIMIT_S,
) -> PluginTable:
    """The table, with each available plugin that was not chosen judged by loading it.

    A start loads the chosen platform only, so that a rival's code never runs beside it; whoever
    shows the table asks here first. Costs one process when there is such a plugin.

    Args:
        table: After selection.
        probes: As given to `discover`.
        skips: Names to leave as they are: the core's own platform is tested with the core.
        limit_s: For all of them. A plugin that this left no time for stays available, and its
            reason says that it was not tried.
    """
    names = unknown_names(table, skips)
    if not names:
        return table
    found = _ask(names, (probes or PROCESS_PROBES).to_json(), time.monotonic() + limit_s)
    return table.replaced(
        lambda row: (
            row.with_verdict(*found[row.name])
            if row.verdict is Verdict.AVAILABLE and row.name in found
            else row
        )
    )


def _ask(names: list[str], probes: str, deadline: float) -> _Found:
    """Verdict, reason and traceback of those that would fail or could not be tried."""
    left_s = max(0.0, deadline - time.monotonic())
    # All at once may take half of the time: the other half finds out which one was at fault.
    given_s = left_s if len(names) == 1 else left_s / 2
    try:
        answers = ask_child(__name__, {"names": names, "probes": probes}, given_s)
    except ChildFailed as failed:
        if len(names) == 1:
            return {names[0]: _judged_from_outside(failed, given_s)}
        return _ask_each(names, probes, deadline)
    return {name: (Verdict(verdict), *rest) for name, (verdict, *rest) in answers.items()}


def _ask_each(names: list[str], probes: str, deadline: float) -> _Found:
    """One of them took the process with it: ask for each alone, with a fair share of the time."""
    found: _Found = {}
    for position, name in enumerate(names):
        now = time.monotonic()
        share_s = max(0.0, deadline - now) / (len(names) - position)
        found |= _ask([name], probes, now + share_s)
    return found


def _judged_from_outside(failed: ChildFailed, given_s: float) -> tuple[Verdict, str, str]:
    if failed.is_timeout and given_s < _HANGS_S:
        return Verdict.AVAILABLE, f"not tried in time: {failed.reason}", ""
    return Verdict.BROKEN, f"loading it failed: {failed.reason}", failed.stderr


def _try_to_load(row: PluginRow) -> PluginRow:
    try:
        if not row.is_extension:
            instantiate(row)
        PluginHooks().load(row)
    except BaseException as exc:  # noqa: BLE001 - third-party code; the reason is kept and shown
        return judged(row, exc)
    return row


def _answer(question: Any) -> object:
    probes = ProbeCache.from_json(question["probes"])
    table = discover(allowed=question["names"], probes=probes)
    tried = [
        _try_to_load(row)
        for row in table.rows
        if row.name in question["names"] and row.verdict is Verdict.AVAILABLE
    ]
    return {row.name: (row.verdict, row.reason, row.traceback) for row in tried if row.is_fault}


if __name__ == "__main__":
    answer_parent(_answer)
