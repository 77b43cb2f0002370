"""Which devices of a platform run the engine, and the mask that gives each process its own."""

from __future__ import annotations

from collections.abc import Sequence

from dougong.contracts.plugin import DeviceInfo
from dougong.errors import PlatformSelectionError, PluginError

_MEMORY_TOLERANCE = 0.02  # firmware reservations make equal cards differ by less than this


def choose_devices(
    devices: Sequence[DeviceInfo], wanted: str | None, platform: str
) -> tuple[tuple[DeviceInfo, ...], tuple[str, ...]]:
    """Devices in the order in which ranks take them, and the reasons for the choice.

    Args:
        devices: Of the platform, as its probe found them.
        wanted: ``--devices``: indices or uuids between commas; obeyed in its order, or refused.
            ``None``: every device like the best one (discrete above integrated, then memory).
        platform: Its name, for messages.

    Raises:
        PlatformSelectionError: An entry is empty, unknown or twice, or the devices are unlike.
    """
    if wanted is not None:
        chosen = _obey(devices, wanted, platform)
        return chosen, (f"devices {_list(chosen)}: asked for by --devices",)
    if not devices:
        return (), ()
    best = min(devices, key=lambda device: (device.is_integrated, -device.memory_bytes))
    chosen = tuple(device for device in devices if _are_alike(device, best))
    if len(chosen) == len(devices):
        return chosen, ()
    others = "; ".join(_describe(device) for device in devices if device not in chosen)
    why = "discrete before integrated, then most memory"
    return chosen, (
        f"devices {_list(chosen)} of unlike ones: {_describe(best)} ranks first ({why}); "
        f"left out: {others}. --devices chooses otherwise",
    )


def _obey(devices: Sequence[DeviceInfo], wanted: str, platform: str) -> tuple[DeviceInfo, ...]:
    entries = [entry.strip() for entry in wanted.split(",")]
    chosen = tuple(_find(devices, entry, wanted, platform) for entry in entries)
    for position, device in enumerate(chosen):
        if device in chosen[:position]:
            raise PlatformSelectionError(
                f"--devices {wanted} names device {device.index} twice. Name each device once."
            )
        if not _are_alike(device, chosen[0]):
            raise PlatformSelectionError(
                f"--devices {wanted} mixes unlike devices: {_describe(chosen[0])} and "
                f"{_describe(device)}. One engine runs on devices that are alike: "
                "start one engine for each kind."
            )
    return chosen


def _find(devices: Sequence[DeviceInfo], entry: str, wanted: str, platform: str) -> DeviceInfo:
    if not entry:
        raise PlatformSelectionError(
            f"--devices {wanted!r} has an empty entry. Write indices or uuids between single "
            "commas, as in --devices 0,2, or leave the option out."
        )
    for device in devices:
        if entry in (str(device.index), device.uuid):
            return device
    known = ", ".join(
        f"{device.index} ({device.uuid})" if device.uuid else str(device.index)
        for device in devices
    )
    raise PlatformSelectionError(
        f"--devices {wanted} names {entry!r}, which platform {platform!r} does not have. "
        f"It has: {known or 'no device'}."
    )


def _are_alike(one: DeviceInfo, other: DeviceInfo) -> bool:
    gap = abs(one.memory_bytes - other.memory_bytes)
    return (one.name, one.arch, one.is_integrated) == (
        *(other.name, other.arch, other.is_integrated),
    ) and gap <= _MEMORY_TOLERANCE * max(one.memory_bytes, other.memory_bytes)


def _list(devices: Sequence[DeviceInfo]) -> str:
    return ",".join(str(device.index) for device in devices)


def _describe(device: DeviceInfo) -> str:
    kind = "integrated" if device.is_integrated else "discrete"
    memory = f"{device.memory_bytes / 2**30:.1f} GiB" if device.memory_bytes else "memory unknown"
    return f"{device.index} {device.name} ({kind}, {memory})"


def parse_mask(variable: str, text: str | None) -> tuple[str, ...] | None:
    """Entries of a mask variable, in order; ``None``: no mask. Empty text masks every device.

    Args:
        variable: Name of the variable, for messages.
        text: Its value; ``None``: it is not set.

    Raises:
        PlatformSelectionError: An entry is empty or stands twice.
    """
    if text is None:
        return None
    if not text.strip():
        return ()
    entries = tuple(entry.strip() for entry in text.split(","))
    if not all(entries):
        raise PlatformSelectionError(
            f"{variable}={text!r} has an empty entry. Write device ids between single commas."
        )
    if len(set(entries)) < len(entries):
        raise PlatformSelectionError(
            f"{variable}={text!r} names a device twice. Name each device once."
        )
    return entries


def check_mask(
    variable: str, mask: tuple[str, ...] | None, devices: Sequence[DeviceInfo], wheel: str
) -> None:
    """Hold a mask against what the probe found behind it; before any worker starts.

    Raises:
        PlatformSelectionError: The mask names more devices than there are.
        PluginError: The probe answered with devices that the mask hides.
    """
    if mask is None or len(mask) == len(devices):
        return
    text = f"{variable}={','.join(mask)}"
    if len(mask) < len(devices):
        raise PluginError(
            f"{wheel}: its probe found {len(devices)} devices and {text} leaves {len(mask)}. "
            "A probe must answer with the devices behind the vendor's mask only."
        )
    raise PlatformSelectionError(
        f"{text} names {len(mask)} devices and {wheel} finds {len(devices)} behind it: "
        "an id is out of range. Name devices that this machine has."
    )


def host_ids(mask: tuple[str, ...] | None, devices: Sequence[DeviceInfo]) -> tuple[str, ...]:
    """What the machine calls each device: the mask's entry, or its index where there is no mask."""
    if mask is None:
        return tuple(str(device.index) for device in devices)
    return tuple(mask[device.index] for device in devices)


def mask_for(mask: tuple[str, ...] | None, devices: Sequence[DeviceInfo]) -> str:
    """Value of the mask variable for a process that shall see ``devices`` only, as 0 to n - 1."""
    return ",".join(host_ids(mask, devices))
