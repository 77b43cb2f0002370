"""Installed plugins → the verdict table. Nothing fails in silence, nothing hides another."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from dougong.contracts.plugin import Available, NotHere, PlatformPlugin
from dougong.errors import ConfigError
from dougong.log import get_logger
from dougong.platforms.entry_points import FoundEntryPoint, find_entry_points
from dougong.platforms.probing import PROCESS_PROBES, Broken, ProbeCache, caught
from dougong.platforms.table import CPU, PluginRow, PluginTable, Verdict
from dougong.platforms.versions import check_contract_version, check_core_version

_log = get_logger(__name__)


def discover(
    *,
    allowed: Collection[str] | None = None,
    probes: ProbeCache | None = None,
    entry_points: Sequence[FoundEntryPoint] | None = None,
) -> PluginTable:
    """Judge every installed plugin; neither a platform class nor a hooks module is imported.

    Args:
        allowed: Plugin names of ``DOUGONG_PLUGINS``; others are excluded, without being imported.
            ``cpu`` is always allowed. ``None``: all.
        probes: Answers already given in this process tree; ``None``: those of this process.
        entry_points: Instead of what is installed.

    Returns:
        Rows available, not here, broken, refused, excluded or shadowed; none is chosen yet.

    Raises:
        ConfigError: ``allowed`` has a name that nobody claims; the message lists those that are.
    """
    found = find_entry_points() if entry_points is None else entry_points
    _check_allowed(allowed, {point.name for point in found})
    counted = [point for point in found if point.shadowed_by is None]
    rows = [_shadowed(point) for point in found if point.shadowed_by is not None]
    for name in {point.name for point in counted}:
        claims = [point for point in counted if point.name == name]
        if allowed is not None and name != CPU and name not in allowed:
            why = f"not in DOUGONG_PLUGINS={','.join(allowed)}"
            rows += [_row(point, Verdict.EXCLUDED, why) for point in claims]
        elif len(claims) > 1:
            rows += _claimed_twice(claims)
        else:
            rows.append(_judge(claims[0], PROCESS_PROBES if probes is None else probes))
    table = PluginTable.of(rows)
    for row in table.rows:
        _log.debug("plugin %s [%s]", row.sentence(), row.path)
    return table


def _check_allowed(allowed: Collection[str] | None, discovered: set[str]) -> None:
    unknown = [name for name in allowed or () if name not in discovered and name != CPU]
    if not unknown:
        return
    near = difflib.get_close_matches(unknown[0], sorted(discovered), n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ConfigError(
        f"DOUGONG_PLUGINS names {', '.join(map(repr, unknown))}, which no installed plugin claims. "
        f"Discovered: {', '.join(sorted(discovered)) or 'none'}.{hint}"
    )


def _row(point: FoundEntryPoint, verdict: Verdict, reason: str = "") -> PluginRow:
    return PluginRow(
        name=point.name,
        distribution=point.distribution,
        version=point.version,
        path=point.path,
        entry_point=point.value,
        verdict=verdict,
        reason=reason,
    )


def _shadowed(point: FoundEntryPoint) -> PluginRow:
    return _row(point, Verdict.SHADOWED, f"the copy at {point.shadowed_by} comes first on the path")


def _claimed_twice(claims: Iterable[FoundEntryPoint]) -> list[PluginRow]:
    """Refuse all that claim one name: any choice between them would be an accident of order."""
    wheels = sorted(f"{point.distribution} {point.version}" for point in claims)
    return [
        _row(
            point,
            Verdict.REFUSED,
            f"the name {point.name!r} is claimed by {' and by '.join(wheels)}; uninstall one",
        )
        for point in claims
    ]


def _judge(point: FoundEntryPoint, probes: ProbeCache) -> PluginRow:
    """The verdict on the only claimant of a name: versions, then descriptor, then probe."""
    wheel = f"{point.distribution} {point.version}"
    if not (fits := check_core_version(point.requires, wheel)):
        return _row(point, Verdict.REFUSED, fits.reason)
    try:
        plugin = point.load()
    except BaseException as exc:  # noqa: BLE001 - third-party code; the reason is kept and shown
        found = caught(exc)
        return _row(point, Verdict.BROKEN).with_verdict(
            Verdict.BROKEN, f"its import raised {found.reason}", found.traceback
        )
    if not isinstance(plugin, PlatformPlugin):
        what = f"the entry point names a {type(plugin).__name__}, not a PlatformPlugin"
        return _row(point, Verdict.BROKEN, what)
    if not (fits := check_contract_version(plugin.requires_contract, wheel)):
        return _row(point, Verdict.REFUSED, fits.reason)
    if plugin.name != point.name:
        what = f"its descriptor says name={plugin.name!r}; the entry point says {point.name!r}"
        return _row(point, Verdict.BROKEN, what)
    described = replace(
        _row(point, Verdict.AVAILABLE), plugin=plugin, is_extension=plugin.platform is None
    )
    return _probed(described, plugin, probes)


def _probed(row: PluginRow, plugin: PlatformPlugin, probes: ProbeCache) -> PluginRow:
    key = f"{row.name} {row.wheel} {row.entry_point}"
    match probes.ask(key, plugin.probe, is_extension=row.is_extension):
        case Available(devices=devices):
            return replace(row, devices=devices)
        case NotHere(reason=reason):
            return row.with_verdict(Verdict.NOT_HERE, reason)
        case Broken(reason=reason, traceback=trace):
            return row.with_verdict(Verdict.BROKEN, reason, trace)
