"""The same overrides in every process: a parent hands its own over, a child compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dougong.contracts.registration import Registration
from dougong.contracts.version import CONTRACT_VERSION
from dougong.errors import PluginError
from dougong.platforms.discovery import discover
from dougong.platforms.loading import LoadedPlatform, load_platform
from dougong.platforms.probing import PROCESS_PROBES, ProbeCache
from dougong.platforms.selection import select_platform
from dougong.platforms.table import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """What a parent tells a child so that it ends with the same platform; plain data, picklable.

    Attributes:
        platform: Name of the platform.
        devices: For `select_platform`; ``None`` where the platform has none.
        allowed: Plugins that the parent looked at.
        probes: `ProbeCache.to_json` of the parent.
        overrides: `active_overrides` of the parent.
    """

    platform: str
    devices: str | None
    allowed: tuple[str, ...]
    probes: str
    overrides: tuple[str, ...]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Handover:
        """From what ``dataclasses.asdict`` and JSON make of one."""
        lists = {name: tuple(data[name]) for name in ("allowed", "overrides")}
        return cls(**{**data, **lists})


def active_overrides(loaded: LoadedPlatform) -> tuple[str, ...]:
    """One sentence for each thing that must be alike in every process of an engine."""
    chosen = (loaded.selection.row, *loaded.selection.extensions)
    return (
        f"contract {CONTRACT_VERSION}",
        *(f"plugin {row.name} of {row.wheel}" for row in chosen),
        *(_describe(registration) for registration in loaded.registrations),
    )


def hand_over(loaded: LoadedPlatform, probes: ProbeCache | None = None) -> Handover:
    """Describe ``loaded`` for a child process; ``probes`` as given to `discover`.

    Does not wait for plugins that are still tried: a child loads what was chosen.
    """
    selection = loaded.selection
    return Handover(
        platform=selection.platform,
        devices=",".join(map(str, selection.device_indices)) or None,
        allowed=tuple(
            dict.fromkeys(r.name for r in selection.table.rows if r.verdict is not Verdict.EXCLUDED)
        ),
        probes=(probes or PROCESS_PROBES).to_json(),
        overrides=active_overrides(loaded),
    )


def join_parent(handover: Handover) -> LoadedPlatform:
    """Repeat the parent's start in this process, without asking a probe again, and compare.

    Raises:
        PluginError: A plugin fails here, or not the same overrides are active as in the parent.
    """
    PROCESS_PROBES.adopt(ProbeCache.from_json(handover.probes))
    table = discover(allowed=handover.allowed)
    selection = select_platform(table, handover.platform, handover.devices, tells_faults=False)
    loaded = load_platform(selection)
    check_same_overrides(handover.overrides, active_overrides(loaded))
    return loaded


def check_same_overrides(parent: tuple[str, ...], child: tuple[str, ...]) -> None:
    """Stop a process whose overrides differ from its parent's.

    Raises:
        PluginError: With what only one of the two has.
    """
    if parent == child:
        return
    lines = [
        *(f"  - only in the parent: {entry}" for entry in parent if entry not in child),
        *(f"  - only in this process: {entry}" for entry in child if entry not in parent),
    ] or ["  - the same ones in another order"]
    raise PluginError(
        "this process does not have the overrides that its parent has, so their results would "
        "differ. Start it in the same environment, with the same files.\n" + "\n".join(lines)
    )


def _describe(registration: Registration) -> str:
    mark, target = registration.mark, registration.target
    name = getattr(target, "__qualname__", None)
    where = f"{target.__module__}:{name}" if name else mark.details if target is None else target
    return f"{mark.kind} {mark.key} = {mark.name} ({where}) of {registration.distribution}"
