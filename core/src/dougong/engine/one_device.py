"""The platform with the one device that an engine uses in this version."""

from __future__ import annotations

from dataclasses import replace

from dougong.config import EngineArgs
from dougong.errors import ConfigError
from dougong.platforms import LoadedPlatform, open_platform, open_present_platform


def open_one_device(args: EngineArgs) -> LoadedPlatform:
    """Open the platform that was asked for, or the one that is found.

    Raises:
        ConfigError: What was asked for is not there, or it is more than one device.
        PluginError: A plugin stops the start.
    """
    return with_one_device(open_platform(args.platform, args.devices), args.devices)


def open_present_device(args: EngineArgs) -> LoadedPlatform:
    """The same for whoever only asks; a platform that is not here is refused with another way.

    Raises:
        ConfigError: As `open_one_device`.
        PluginError: As `open_one_device`.
    """
    return with_one_device(open_present_platform(args.platform, args.devices), args.devices)


def with_one_device(loaded: LoadedPlatform, wanted: str | None) -> LoadedPlatform:
    """The same with the one device that the engine uses, and the reason where it had a choice.

    Args:
        loaded: As it was opened.
        wanted: ``--devices``.

    Raises:
        ConfigError: More than one device was asked for.
    """
    selection = loaded.selection
    if len(selection.devices) < 2:
        return loaded
    first = selection.devices[0]
    if wanted is not None:
        named = ", ".join(f"{device.index} ({device.name})" for device in selection.devices)
        raise ConfigError(
            f"--devices {wanted} asks for {len(selection.devices)} devices: {named}. One engine "
            f"runs on one device in this version. Name one, as in --devices {first.index}, and "
            "start one engine for each."
        )
    reason = (
        f"device {first.index} ({first.name}): the first of {len(selection.devices)} alike, as one "
        "engine runs on one device in this version; --devices chooses another"
    )
    reasons = (*selection.reasons, reason)
    return replace(loaded, selection=replace(selection, devices=(first,), reasons=reasons))
