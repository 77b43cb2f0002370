"""What a start does before it touches the model: the platform, its device, then the files.

A platform that is not there or an option it cannot obey is refused before anything is fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dougong.checkpoint import CheckpointFiles, resolve_reference
from dougong.config import EngineArgs
from dougong.contracts import Platform
from dougong.engine.platform_answers import ask_platform
from dougong.engine.start_times import timed
from dougong.errors import ConfigError, PluginError
from dougong.log import get_logger
from dougong.platforms import LoadedPlatform, open_platform

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """Where an engine will run, and what.

    Attributes:
        loaded: The platform, with the one device that is used.
        files: The model's files.
        seconds: What each part took, by name.
    """

    loaded: LoadedPlatform
    files: CheckpointFiles
    seconds: Mapping[str, float] = field(default_factory=dict)


def prepare(args: EngineArgs) -> Preparation:
    """Open the platform, hold the options against it, and only then find the model's files.

    Raises:
        ConfigError: What was asked for cannot work.
        PluginError: A plugin stops the start.
    """
    seconds: dict[str, float] = {}
    with timed(seconds, "platform"):
        loaded = with_one_device(open_platform(args.platform, args.devices), args.devices)
        check_attention_backend(loaded.platform, args.attention_backend)
    with timed(seconds, "files"):
        files = resolve_reference(args.model, revision=args.revision)
    return Preparation(loaded=loaded, files=files, seconds=seconds)


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


def check_attention_backend(
    platform: Platform, name: str | None, *, proposed_by: str | None = None
) -> None:
    """Refuse a backend that the platform does not have.

    Args:
        platform: Names its backends.
        name: The one asked for; ``None``: nobody asked.
        proposed_by: Plugin that proposed it; ``None``: the user did.

    Raises:
        ConfigError: The user asked for it.
        PluginError: The platform itself proposed it.
    """
    if name is None:
        return
    known = ask_platform(platform.name, "get_attn_backends", platform.get_attn_backends)
    if name in known:
        return
    has = f"which platform {platform.name} does not have. It has: {', '.join(known) or 'none'}"
    if proposed_by is not None:
        raise PluginError(
            f"Platform {proposed_by} proposes attention_backend={name}, {has}.", plugin=proposed_by
        )
    raise ConfigError(
        f"attention_backend={name} was asked for, {has}. Use one of those, or leave it unset."
    )


def warn_of_late_faults(loaded: LoadedPlatform) -> None:
    """Log plugins whose fault showed only when somebody tried them, each once.

    Those whose fault was known earlier were logged when the platform was chosen and loaded.
    """
    known = {(row.name, row.path) for row in loaded.selection.table.faults()}
    for row in loaded.table.faults():
        if (row.name, row.path) not in known:
            _logger.warning("not used: %s", row.sentence())
