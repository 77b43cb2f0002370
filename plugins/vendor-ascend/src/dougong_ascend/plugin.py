"""What the core reads first: who this is, and whether its devices are here.

Every ``dougong`` command imports this module, on machines without such a device too. So it imports
neither torch nor anything of the vendor, and opens nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from dougong.contracts import Available, NotHere, PlatformPlugin, ProbeAnswer

from dougong_ascend.driver import VISIBLE_DEVICES_ENV, Machine, list_devices
from dougong_ascend.software import missing_software


def probe() -> ProbeAnswer:
    """Which devices are here, or every piece that is missing.

    Raises:
        ConfigError: The mask of devices cannot be followed; this platform is then listed as broken
            with the sentence that says so.
    """
    if missing := (*_missing_devices(Machine()), *missing_software()):
        return NotHere("; ".join(missing))
    if devices := list_devices():
        return Available(devices)
    return NotHere(f"{VISIBLE_DEVICES_ENV} is empty, which leaves no device")


def _missing_devices(machine: Machine) -> Iterator[str]:
    if not machine.count():
        yield (
            "no /dev/davinci0: the driver is not loaded or, in a container, the device files are "
            "not mounted"
        )
    if closed := machine.closed():
        yield f"{', '.join(closed)} cannot be opened by this user: add it to the group that owns it"


plugin = PlatformPlugin(
    name="ascend",
    requires_contract=">=1.0,<2",
    probe=probe,
    platform="dougong_ascend.platform:AscendPlatform",
    hooks="dougong_ascend.hooks",
)
