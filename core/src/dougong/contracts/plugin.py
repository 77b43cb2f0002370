"""The descriptor an entry point names, and the typed answers of its probe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """One device, as ``dougong doctor`` lists it; found without opening a device context.

    Attributes:
        index: Position within the platform, after the vendor's own mask.
        name: As the vendor prints it.
        uuid: Stable across restarts where the vendor has one; else empty.
        arch: Family name to pass to `Platform.claims`.
        memory_bytes: Physical memory; 0: unknown without a context.
        driver_version: Empty: unknown.
        is_integrated: The memory is the host's; ranked below discrete devices.
    """

    index: int
    name: str
    uuid: str = ""
    arch: str = ""
    memory_bytes: int = 0
    driver_version: str = ""
    is_integrated: bool = False


@dataclass(frozen=True, slots=True)
class Available:
    """The platform can be used in this process.

    Attributes:
        devices: At least one, in the vendor's order.
    """

    devices: tuple[DeviceInfo, ...]


@dataclass(frozen=True, slots=True)
class NotHere:
    """The platform is not on this machine, which is no fault.

    Attributes:
        reason: What was looked for and not found ("no /dev/acme0; driver not installed").
    """

    reason: str


ProbeAnswer = Available | NotHere


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformPlugin:
    """What an entry point in the group ``dougong.platform_plugins`` names.

    Importing the module that holds it must import neither torch nor a vendor runtime.

    Attributes:
        name: As typed after ``--platform``; the entry point's own name.
        requires_contract: Versions of the contract this was written for (PEP 440, ``">=1.0,<2"``);
            checked before anything else of the plugin is used.
        probe: Called at most once per process tree; touches no device context. A raise lists the
            plugin as broken, with the traceback.
        platform: Import string ``"package.module:Class"`` of the `Platform`, loaded only when
            chosen. ``None``: an extension that only brings ops or models.
        hooks: Module with pluggy implementations and marked ops; ``None``: none.
        for_platforms: For an extension, the platforms it extends; empty: any.
        auto_select: ``False`` keeps it out of the automatic choice: it runs only when named.
    """

    name: str
    requires_contract: str
    probe: Callable[[], ProbeAnswer]
    platform: str | None = None
    hooks: str | None = None
    for_platforms: tuple[str, ...] = ()
    auto_select: bool = True
