"""What can be told of the devices without opening one: files of the kernel, and ``npu-smi``.

Nothing here asks the vendor's runtime. A question to it would fix what
``ASCEND_RT_VISIBLE_DEVICES`` means for the rest of the process, and open a context.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dougong.contracts import ConfigError, DeviceInfo, read_device_mask

from dougong_ascend.families import VENDOR_BUS_ID, family_of_bus_id, family_of_name
from dougong_ascend.management import Chip, ask_management
from dougong_ascend.software import driver_version

VISIBLE_DEVICES_ENV = "ASCEND_RT_VISIBLE_DEVICES"

_DEVICE_FILE = re.compile(r"davinci(\d+)")
_GENERIC_NAME = "Ascend NPU"


@dataclass(frozen=True, slots=True)
class Machine:
    """Where this machine's devices are described; tests give folders of their own.

    Attributes:
        device_files: Has a ``davinci0`` for each device, and ``davinci_manager``.
        bus: Has a folder for each PCI function.
    """

    device_files: Path = Path("/dev")
    bus: Path = Path("/sys/bus/pci/devices")

    def count(self) -> int:
        """Devices that the driver has made files for."""
        return len(self._files())

    def closed(self) -> tuple[str, ...]:
        """Those of the files that this user may not open."""
        return tuple(str(file) for file in self._files() if not os.access(file, os.R_OK | os.W_OK))

    def _files(self) -> list[Path]:
        try:
            entries = sorted(self.device_files.iterdir())
        except OSError:
            return []
        return [entry for entry in entries if _DEVICE_FILE.fullmatch(entry.name)]

    def family(self) -> str:
        """Of the chips on the bus; empty: none is known, or they are not all of one."""
        families = {family_of_bus_id(device_id) for device_id in self._vendor_device_ids()} - {""}
        return families.pop() if len(families) == 1 else ""

    def _vendor_device_ids(self) -> list[int]:
        try:
            entries = list(self.bus.iterdir())
        except OSError:
            return []
        ids = [(_hex(entry / "vendor"), _hex(entry / "device")) for entry in entries]
        return [device for vendor, device in ids if vendor == VENDOR_BUS_ID]


def list_devices(
    machine: Machine | None = None, environ: Mapping[str, str] = os.environ
) -> tuple[DeviceInfo, ...]:
    """Devices that this process may use, in the order of the mask.

    Raises:
        ConfigError: The mask names what is not there, names it twice, or is not in ascending order.
    """
    machine = machine or Machine()
    count = machine.count()
    if not count:
        return ()
    visible = read_visible_devices(environ.get(VISIBLE_DEVICES_ENV), count)
    management_version, chips = ask_management()
    if len(chips) != count:  # a container may see other devices than the tool prints
        chips = (Chip(""),) * count
    on_bus = machine.family()
    version = driver_version() or management_version
    return tuple(
        _device(index, chips[physical], on_bus, version) for index, physical in enumerate(visible)
    )


def read_visible_devices(mask: str | None, count: int) -> tuple[int, ...]:
    """Physical devices that a mask leaves.

    The runtime takes numbers alone, and counts no device at all where they do not ascend; it stops
    at what it does not know. Here each of these is refused, so that nobody serves on fewer devices
    than was meant.

    Raises:
        ConfigError: See there.
    """
    visible = read_device_mask(mask, [""] * count, variable=VISIBLE_DEVICES_ENV)
    if list(visible) != sorted(visible):
        in_order = ",".join(map(str, sorted(visible)))
        raise ConfigError(
            f"{VISIBLE_DEVICES_ENV}={mask} is not in ascending order, and torch-npu then finds no "
            f"device at all; set {VISIBLE_DEVICES_ENV}={in_order}, and choose among these with "
            "--devices"
        )
    return visible


def _device(index: int, chip: Chip, on_bus: str, version: str) -> DeviceInfo:
    return DeviceInfo(
        index=index,
        name=chip.name or _GENERIC_NAME,
        arch=on_bus or family_of_name(chip.name),
        memory_bytes=chip.memory_bytes,
        driver_version=version,
    )


def _hex(file: Path) -> int:
    try:
        return int(file.read_text("ascii").strip(), 16)
    except (OSError, ValueError):
        return 0
