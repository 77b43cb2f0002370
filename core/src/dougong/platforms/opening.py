"""Discover, choose, load: what every start does, in one call."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from dougong import envs
from dougong.log import get_logger
from dougong.platforms.devices import check_mask, host_ids, parse_mask
from dougong.platforms.discovery import discover
from dougong.platforms.examination import examine_rest, unknown_names
from dougong.platforms.loading import LoadedPlatform, load_platform
from dougong.platforms.selection import select_platform

_log = get_logger(__name__)


def open_platform(name: str | None = None, devices: str | None = None) -> LoadedPlatform:
    """Discover, choose and load, as ``--platform`` / ``DOUGONG_PLATFORM`` and the table have it.

    Plugins that could run here and were not chosen are tried in a child meanwhile, so that the
    table of `LoadedPlatform` shows those that would fail.

    Args:
        name: ``--platform``; ``None``: ``DOUGONG_PLATFORM``, and without it the automatic choice.
        devices: ``--devices``.

    Raises:
        ConfigError: As `discover` and `select_platform`.
        PluginError: As `select_platform` and `load_platform`.
    """
    table = discover(allowed=envs.plugins())
    selection = select_platform(table, name or envs.platform(), devices)
    for reason in selection.reasons:
        _log.info("%s", reason)
    loaded = load_platform(selection)
    _check_mask(loaded)
    if not unknown_names(loaded.selection.table):
        return loaded
    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dougong-examination")
    rest = pool.submit(examine_rest, loaded.selection.table)
    pool.shutdown(wait=False)
    return replace(loaded, rest=rest)


def _check_mask(loaded: LoadedPlatform) -> None:
    """Refuse a mask that makes no sense before any worker starts; say what it means otherwise.

    Only here, in the parent: a child's own mask is narrower than the devices its parent found.
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
