"""What the driver tells of the devices without a library being loaded or a device opened.

A vendor reads ``/dev``, ``/sys`` or a management library here. The simulated driver is a few
environment variables, which stand for the machine.
"""

from __future__ import annotations

from dougong.contracts import DeviceInfo

from dougong_sim.device.environment import read_environment

VISIBLE_DEVICES_ENV = "SIM_VISIBLE_DEVICES"
ARCH = "sim1"

_NAME = "Simulated accelerator"
_VERSION = "1.0"


def list_devices() -> tuple[DeviceInfo, ...]:
    """Devices that this process may use, in the order of the mask.

    The index is the place in the mask; the uuid is the physical device's, as a serial number is:
    the same in every process, after every restart, under every mask.
    """
    environment = read_environment()
    return tuple(
        DeviceInfo(
            index=index,
            name=_NAME,
            uuid=f"SIM-{physical:08d}",
            arch=ARCH,
            memory_bytes=environment.memory_bytes,
            driver_version=_VERSION,
        )
        for index, physical in enumerate(environment.visible)
    )


def runs_behind_host() -> bool:
    """Whether calls return before their work is done; in eager mode they do not."""
    return read_environment().mode != "eager"
