"""Discover, choose, load: what every start does, in one call."""

from __future__ import annotations

from dataclasses import replace

from dougong import envs
from dougong.log import get_logger
from dougong.platforms.devices import check_mask, host_ids, parse_mask
from dougong.platforms.discovery import discover
from dougong.platforms.examination import START_LIMIT_S, examine_in_background
from dougong.platforms.loading import LoadedPlatform, load_platform
from dougong.platforms.selection import select_platform

_log = get_logger(__name__)


def open_platform(
    name: str | None = None, devices: str | None = None, *, examination_s: float = START_LIMIT_S
) -> LoadedPlatform:
    """Discover, choose and load, as ``--platform`` / ``DOUGONG_PLATFORM`` and the table have it.

    Plugins that could run here and were not chosen are tried in a child meanwhile, so that the
    table of `LoadedPlatform` shows those that would fail.

    Args:
        name: ``--platform``; ``None``: ``DOUGONG_PLATFORM``, and without it the automatic choice.
        devices: ``--devices``.
        examination_s: For trying the others; the table waits no longer for what hangs.

    Raises:
        ConfigError: As `discover` and `select_platform`.
        PluginError: As `select_platform` and `load_platform`.
    """
    table = discover(allowed=envs.plugins())
    selection = select_platform(table, name or envs.platform(), devices)
    for reason in selection.reasons:
        _log.info("%s", reason)
    loaded = load_platform(selection)
    check_device_mask(loaded)
    return replace(loaded, rest=examine_in_background(loaded.selection.table, examination_s))


def check_device_mask(loaded: LoadedPlatform) -> None:
    """Refuse a mask that makes no sense before any worker starts; say what it means otherwise.

    Only in the parent: a child's own mask is narrower than the devices its parent found.

    Raises:
        PlatformSelectionError: The mask has empty or repeated entries, or names too many devices.
        PluginError: The probe answered with devices that the mask hides.
    """
    variable, row = loaded.platform.visible_devices_env, loaded.selection.row
    if not variable:
        return
    mask = parse_mask(variable, envs.device_mask(variable))
    check_mask(variable, mask, row.devices, row.wheel)
    if mask is not None:
        ids = ",".join(host_ids(mask, loaded.selection.devices))
        own = ",".join(map(str, loaded.selection.device_indices))
        _log.info("devices %s are %s of this machine (%s)", own, ids, variable)
