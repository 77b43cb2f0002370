"""Variables that leave a process some of a machine's devices, as vendors' runtimes read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dougong.errors import ConfigError


def read_device_mask(
    mask: str | None,
    uuids: Sequence[str],
    *,
    variable: str,
    stops_at_unknown: bool = False,
    keeps_order: bool = True,
) -> tuple[int, ...]:
    """The physical devices that a mask leaves: ``"2,0"``, ``"GPU-3f1c,1"``.

    Args:
        mask: Value of the variable; ``None``: not set, every device.
        uuids: One for each physical device, in the driver's order; empty where there is none.
        variable: Name of the variable, for messages.
        stops_at_unknown: The vendor's runtime ends the list at the first entry that names no
            device, so that ``"0,9,1"`` leaves device 0 and ``"-1"`` none. Otherwise such an entry
            is refused.
        keeps_order: The first entry becomes device 0. Otherwise the mask is a set, and devices
            keep the driver's order.

    Returns:
        Indices into ``uuids``; the place in the result is the index within the platform. Empty
        where the mask is empty.

    Raises:
        ConfigError: An entry names no device, more than one (the beginning of two uuids), or one
            that was named before: all such entries.
    """
    if mask is None:
        return tuple(range(len(uuids)))
    found: list[int] = []
    problems: list[str] = []
    for entry in _entries(mask):
        named = _named(entry, uuids)
        if not named and stops_at_unknown:
            break
        if len(named) != 1:
            problems.append(f"{entry!r} names {'more than one device' if named else 'no device'}")
        elif named[0] in found:
            problems.append(f"{entry!r} names device {named[0]} a second time")
        else:
            found.append(named[0])
    if problems:
        known = ", ".join(f"{index} {uuid}".strip() for index, uuid in enumerate(uuids))
        raise ConfigError(
            f"{variable}={mask} cannot be followed; this machine has {known or 'no device'}:",
            tuple(problems),
        )
    return tuple(found if keeps_order else sorted(found))


def _entries(mask: str) -> Iterator[str]:
    return (entry.strip() for entry in mask.split(",")) if mask.strip() else iter(())


def _named(entry: str, uuids: Sequence[str]) -> list[int]:
    """Indices of what an entry may mean; more than one where it is too short."""
    if entry.isascii() and entry.isdecimal():
        return [int(entry)] if int(entry) < len(uuids) else []
    wanted = entry.lower()
    if not wanted:
        return []
    own = [uuid.lower() for uuid in uuids]
    if wanted in own:
        return [own.index(wanted)]
    return [index for index, uuid in enumerate(own) if uuid.startswith(wanted)]
