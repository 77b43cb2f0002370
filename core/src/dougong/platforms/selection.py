"""Choice of the platform: obeyed, or found by rule, or refused with what to do; never replaced."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from dougong.contracts.plugin import DeviceInfo
from dougong.errors import PlatformSelectionError, PluginError
from dougong.log import get_logger
from dougong.platforms.devices import choose_devices
from dougong.platforms.table import CPU, PluginRow, PluginTable, Verdict

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The one platform of an engine.

    Attributes:
        row: The chosen plugin.
        devices: To use, in the order in which ranks take them.
        extensions: Op-only plugins that go with it, in load order.
        is_explicit: Somebody named it.
        reasons: Why this platform and these devices, one sentence each.
        table: All plugins, the chosen ones marked.
    """

    row: PluginRow
    devices: tuple[DeviceInfo, ...]
    extensions: tuple[PluginRow, ...]
    is_explicit: bool
    reasons: tuple[str, ...]
    table: PluginTable

    @property
    def platform(self) -> str:
        """Name of the platform."""
        return self.row.name

    @property
    def device_indices(self) -> tuple[int, ...]:
        """Device of each rank, within the platform."""
        return tuple(device.index for device in self.devices)


def select_platform(
    table: PluginTable,
    name: str | None = None,
    devices: str | None = None,
    *,
    tells_faults: bool = True,
) -> Selection:
    """Choose a platform from a table.

    Plugins at fault that do not stop it are logged, each with its sentence, unless somebody else
    tells of them (``tells_faults=False``: a report, a parent that made the same choice).

    Args:
        table: As `discover` made it.
        name: ``--platform`` or ``DOUGONG_PLATFORM``: that one or an error. ``None``: the only
            available one that chooses itself; ``cpu`` when every other says *not here*.
        devices: ``--devices``; see `choose_devices`.
        tells_faults: See above.

    Raises:
        PlatformSelectionError: Nobody, or more than one, fits; the message names the option.
        PluginError: The named one, or without a name any, is broken or refused.
    """
    if name is not None:
        row, reason = _named(table, name), f"platform {name}: asked for"
    else:
        row, reason = _automatic(table)
    chosen, device_reasons = choose_devices(row.devices, devices, row.name)
    for fault in table.faults() if tells_faults else ():
        _log.warning("not used: %s", fault.sentence())
    row = row.with_verdict(Verdict.CHOSEN, reason)
    extensions = tuple(
        other.with_verdict(Verdict.CHOSEN, f"extends {row.name}")
        for other in table.rows
        if _extends(other, row.name)
    )
    marked = {(other.name, other.path): other for other in (row, *extensions)}
    return Selection(
        row=row,
        devices=chosen,
        extensions=extensions,
        is_explicit=name is not None,
        reasons=(reason, *device_reasons),
        table=PluginTable(
            tuple(marked.get((other.name, other.path), other) for other in table.rows)
        ),
    )


def refusal(rows: Sequence[PluginRow], is_explicit: bool) -> PluginError:
    """The error of a start that broken or refused plugins stop; their sentences come last.

    Args:
        rows: The plugins at fault; never empty.
        is_explicit: The platform was named, so choosing another is not proposed as a way out.
    """
    names = ", ".join(dict.fromkeys(row.name for row in rows))
    wheels = " ".join(dict.fromkeys(row.distribution for row in rows))
    if is_explicit:
        head = f"platform {names} was asked for and cannot be used; no other one takes its place."
    else:
        head = (
            f"no platform is chosen automatically while a plugin is at fault ({names}). "
            f"Mend it, or uninstall it (pip uninstall {wheels}), "
            "or choose a platform (--platform NAME, for instance --platform cpu)."
        )
    return PluginError("\n".join([head, *(row.sentence() for row in rows)]), plugin=rows[-1].name)


def _extends(row: PluginRow, platform: str) -> bool:
    if row.plugin is None or row.verdict is not Verdict.AVAILABLE or not row.is_extension:
        return False
    return not row.plugin.for_platforms or platform in row.plugin.for_platforms


def _named(table: PluginTable, name: str) -> PluginRow:
    rows = table.named(name)
    if not rows:
        names = sorted({row.name for row in table.rows if not row.is_extension})
        near = difflib.get_close_matches(name, names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise PlatformSelectionError(
            f"platform {name!r} is not installed. Installed: {', '.join(names) or 'none'}.{hint}"
        )
    if any(row.is_fault for row in rows):
        raise refusal(rows, is_explicit=True)
    row = rows[0]
    if row.is_extension:
        raise PlatformSelectionError(
            f"{name!r} ({row.wheel}) brings ops or models and no platform. "
            "Name the platform that it extends."
        )
    if row.verdict is not Verdict.AVAILABLE:
        raise PlatformSelectionError(
            f"platform {name!r} was asked for and cannot be used, and no other one takes its "
            f"place. {row.sentence()}"
        )
    return row


def _automatic(table: PluginTable) -> tuple[PluginRow, str]:
    if faults := [row for row in table.faults() if not row.is_extension]:
        raise refusal(faults, is_explicit=False)
    rivals = [row for row in table.rows if not row.is_extension and row.name != CPU]
    able = [row for row in rivals if _chooses_itself(row)]
    if len(able) > 1:
        wheels = " and ".join(f"{row.name} ({row.wheel})" for row in able)
        raise PlatformSelectionError(
            f"more than one platform is available: {wheels}. "
            f"Choose with --platform {' or --platform '.join(row.name for row in able)} "
            "(or DOUGONG_PLATFORM)."
        )
    passed_over = "; ".join(
        f"{row.name}: {_why_not(row)}" for row in rivals if not _chooses_itself(row)
    )
    if able:
        also = f" ({passed_over})" if passed_over else ""
        return able[0], f"platform {able[0].name}: the only one that is available{also}"
    row = next((row for row in table.named(CPU) if row.verdict is Verdict.AVAILABLE), None)
    if row is None:
        found = "; ".join(row.sentence() for row in table.rows) or "no plugin is installed"
        raise PlatformSelectionError(
            f"no platform is available, cpu included. Install a platform's wheel, or dougong "
            f"again. Found: {found}."
        )
    why = passed_over or "no other platform is installed"
    return row, f"platform {CPU}: no other one is available ({why})"


def _chooses_itself(row: PluginRow) -> bool:
    if row.verdict is not Verdict.AVAILABLE or row.plugin is None:
        return False
    return row.plugin.auto_select


def _why_not(row: PluginRow) -> str:
    if row.verdict is Verdict.AVAILABLE:
        return f"only runs when named (--platform {row.name})"
    return row.reason or row.verdict
