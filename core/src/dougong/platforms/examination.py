"""Would the plugins that were not chosen load? Tried in a short-lived child, never here."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dougong.platforms.discovery import discover
from dougong.platforms.hooks import PluginHooks
from dougong.platforms.loading import instantiate, judged
from dougong.platforms.probing import PROCESS_PROBES, ProbeCache
from dougong.platforms.short_lived import ChildFailed, answer_parent, ask_child
from dougong.platforms.table import CPU, PluginRow, PluginTable, Verdict

_TIMEOUT_S = 60.0


def unknown_names(table: PluginTable, skips: Collection[str] = (CPU,)) -> list[str]:
    """Names of the plugins that could run here and that nobody has loaded."""
    rows = (row for row in table.rows if row.verdict is Verdict.AVAILABLE)
    return sorted({row.name for row in rows if row.name not in skips})


def examine_rest(
    table: PluginTable, probes: ProbeCache | None = None, skips: Collection[str] = (CPU,)
) -> PluginTable:
    """The table, with each available plugin that was not chosen judged by loading it.

    A start loads the chosen platform only, so that a rival's code never runs beside it; whoever
    shows the table asks here first. Costs one process when there is such a plugin.

    Args:
        table: After selection.
        probes: As given to `discover`.
        skips: Names to leave as they are: the core's own platform is tested with the core.
    """
    names = unknown_names(table, skips)
    if not names:
        return table
    found = _ask(names, (probes or PROCESS_PROBES).to_json())
    return table.replaced(
        lambda row: (
            row.with_verdict(*found[row.name])
            if row.verdict is Verdict.AVAILABLE and row.name in found
            else row
        )
    )


def _ask(names: list[str], probes: str) -> dict[str, tuple[Verdict, str, str]]:
    """Verdict, reason and traceback of those that would fail."""
    try:
        answers = ask_child(__name__, {"names": names, "probes": probes}, _TIMEOUT_S)
    except ChildFailed as failed:
        if len(names) == 1:
            reason = f"loading it failed: {failed.reason}"
            return {names[0]: (Verdict.BROKEN, reason, failed.stderr)}
        # One of them took the process with it: ask for each alone to find out which.
        return {key: value for name in names for key, value in _ask([name], probes).items()}
    return {name: (Verdict(verdict), *rest) for name, (verdict, *rest) in answers.items()}


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
