"""What can be told of the GPUs without a runtime being loaded or a device opened.

``/dev/kfd`` is the driver's door, ``/sys`` its list. `list_devices` is what is left of that list
under the masks of the environment, under the numbers that HIP gives.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dougong.contracts import DeviceInfo

from dougong_rocm.masks import MASK, apply_masks
from dougong_rocm.topology import TOPOLOGY, Gpu, driver_version, read_gpus

VISIBLE_DEVICES_ENV = MASK
_DOOR = "dev/kfd"

_NAMES = {
    "gfx90a": "AMD Instinct MI200 series",
    "gfx942": "AMD Instinct MI300 series",
    "gfx950": "AMD Instinct MI350 series",
}


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the driver is looked for.

    Attributes:
        root: ``/``, or a folder that stands for it.
        environment: Variables of this process.
    """

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def obstacle(self) -> str:
        """What of the driver is missing, with what to do; empty: nothing."""
        door = self.root / _DOOR
        if not door.exists():
            return (
                "no /dev/kfd; the amdgpu driver is not loaded, or the container was not given it: "
                "install the driver, or start with --device /dev/kfd --device /dev/dri"
            )
        if not os.access(door, os.R_OK | os.W_OK):
            return (
                "/dev/kfd may not be opened by this user; add the user to the groups render and "
                "video, in a container with --group-add"
            )
        if not self.all_gpus():
            return (
                f"/{TOPOLOGY} lists no GPU that this process may use; in a container pass its "
                "/dev/dri/renderD* as well"
            )
        return ""

    def all_gpus(self) -> tuple[Gpu, ...]:
        """Whatever masks are set."""
        return read_gpus(self.root)

    def gpus(self) -> tuple[Gpu, ...]:
        """Under the masks.

        Raises:
            ConfigError: A mask cannot be followed.
        """
        return apply_masks(self.all_gpus(), self.environment)

    def list_devices(self) -> tuple[DeviceInfo, ...]:
        """Devices in HIP's order.

        Raises:
            ConfigError: A mask cannot be followed.
        """
        found = driver_version(self.root)
        return tuple(
            DeviceInfo(
                index=index,
                name=name_of(gpu.arch),
                uuid=gpu.uuid,
                arch=gpu.arch,
                memory_bytes=gpu.memory_bytes,
                driver_version=found,
                is_integrated=gpu.is_integrated,
            )
            for index, gpu in enumerate(self.gpus())
        )


def name_of(arch: str) -> str:
    """Of a family; the driver's own list has no names of products."""
    return _NAMES.get(arch, f"AMD GPU {arch}")
