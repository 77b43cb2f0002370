"""A machine in a folder: what the kernel, the loader and the driver leave in a file system."""

from __future__ import annotations

from pathlib import Path

B580 = 0xE20B
MAX_1550 = 0x0BD5
ARC_140V = 0x64A0
UHD_770 = 0x4680
A770 = 0x56A0


class Machine:
    """Starts without a device and without any library.

    Args:
        root: An empty folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._count = 0
        (root / "sys/class/drm").mkdir(parents=True)
        (root / "dev/dri").mkdir(parents=True)

    def add_card(
        self,
        address: str,
        device_id: int,
        *,
        vendor: int = 0x8086,
        tiles: tuple[int, ...] = (),
    ) -> None:
        """A device with a render node; ``tiles`` are their sizes in bytes, 0: not told."""
        device = self.root / "sys/devices/pci0000:00" / address
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"0x{vendor:04x}\n", "ascii")
        (device / "device").write_text(f"0x{device_id:04x}\n", "ascii")
        for number, size in enumerate(tiles):
            tile = device / f"tile{number}"
            tile.mkdir()
            if size:
                (tile / "physical_vram_size_bytes").write_text(f"{size}\n", "ascii")
        node = f"renderD{128 + self._count}"
        self._count += 1
        (self.root / "sys/class/drm" / node).mkdir()
        (self.root / "sys/class/drm" / node / "device").symlink_to(device)
        (self.root / "dev/dri" / node).touch()

    def add_library(self, name: str, version: str) -> None:
        """A library as a package lays it down: the file with its version, and a link to it."""
        folder = self.root / "usr/lib/x86_64-linux-gnu"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.{version}").touch()
        (folder / f"{name}.{version.partition('.')[0]}").symlink_to(f"{name}.{version}")

    def add_drivers(self) -> None:
        """Level Zero's loader and Intel's driver."""
        self.add_library("libze_loader.so", "1.28.0")
        self.add_library("libze_intel_gpu.so", "1.6.33578")
