"""What can be told of Intel GPUs without a library being loaded or a device opened.

The kernel lists devices in ``/sys``; torch and Level Zero number them. Both agree only under rules
that this module keeps, and where they do not hold it refuses rather than guesses:

* Level Zero numbers devices in an order of its own, whatever the order in ``ZE_AFFINITY_MASK``; in
  PCI order only with ``ZE_ENABLE_PCI_ID_DEVICE_ORDER=1``. Devices that are all alike need no order.
* The mask's numbers count what ``ZE_FLAT_DEVICE_HIERARCHY`` makes a device: tiles in ``FLAT`` (the
  default) and ``COMBINED``, whole cards in ``COMPOSITE``.
* torch shows discrete devices only, and integrated ones where there are no others.

`dougong_xpu.runtime` compares the outcome with torch's own count before a device is used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dougong.contracts import ConfigError, DeviceInfo, read_device_mask

from dougong_xpu.families import VENDOR_ID, family_of, is_integrated_family, name_of

VISIBLE_DEVICES_ENV = "ZE_AFFINITY_MASK"
HIERARCHY_ENV = "ZE_FLAT_DEVICE_HIERARCHY"
ORDER_ENV = "ZE_ENABLE_PCI_ID_DEVICE_ORDER"

_TILE_IS_DEVICE = {"FLAT": True, "COMBINED": True, "COMPOSITE": False}
_LIBRARY_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/lib",
    "lib/x86_64-linux-gnu",
    "lib64",
)
_COMPUTE_LIBRARIES = ("libze_intel_gpu.so.1", "libze_intel_gpu_legacy1.so.1")
_LOADER = "libze_loader.so.1"


@dataclass(frozen=True, slots=True)
class Card:
    """One Intel GPU that the kernel lists.

    Attributes:
        address: On the PCI bus, ``"0000:03:00.0"``: the same after every restart.
        device_id: PCI device id.
        render_node: Name under ``/dev/dri``.
        num_tiles: Parts that are devices of their own in the flat hierarchy.
        memory_bytes: Of the whole card; 0: the kernel does not tell.
        is_openable: Whether this user may open the render node.
    """

    address: str
    device_id: int
    render_node: str
    num_tiles: int = 1
    memory_bytes: int = 0
    is_openable: bool = True

    @property
    def is_integrated(self) -> bool:
        """A part of the processor: on bus 0, or of a family that is nothing else."""
        return self.address.split(":")[1:2] == ["00"] or is_integrated_family(self.device_id)


def find_cards(root: Path = Path("/")) -> tuple[Card, ...]:
    """Intel GPUs with a render node, in PCI order.

    Args:
        root: Of the file system; tests have one of their own.
    """
    nodes = sorted((root / "sys/class/drm").glob("renderD*"))
    cards = (_card(node, root) for node in nodes)
    return tuple(sorted((card for card in cards if card), key=lambda card: card.address))


def list_devices(
    root: Path = Path("/"), environment: Mapping[str, str] = os.environ
) -> tuple[DeviceInfo, ...]:
    """Devices that this process may use, as torch numbers them.

    Args:
        root: Of the file system.
        environment: The mask and the two variables that say what its numbers mean.

    Raises:
        ConfigError: The mask cannot be followed, or it cannot be told which device has which
            number.
    """
    is_tile_device = _tile_is_device(environment)
    units = [unit for card in find_cards(root) for unit in _units(card, is_tile_device)]
    is_ordered = environment.get(ORDER_ENV) == "1"
    visible = [units[index] for index in _visible(len(units), environment)]
    if len(visible) < len(units) and not is_ordered:
        _check_alike(units, f"{VISIBLE_DEVICES_ENV} counts in an order that is not known")
    discrete = [unit for unit in visible if not unit.is_integrated]
    kept = discrete or visible  # as torch does
    if not is_ordered:
        _check_alike(kept, "which of them is device 0 is not known")
    version = compute_driver_version(root, environment)
    return tuple(
        replace(unit, index=index, driver_version=version) for index, unit in enumerate(kept)
    )


def find_loader(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> Path | None:
    """Level Zero's loader, which torch links to; ``None``: not on this machine."""
    return next(_libraries(_LOADER, root, environment), None)


def find_compute_driver(
    root: Path = Path("/"), environment: Mapping[str, str] = os.environ
) -> Path | None:
    """Intel's driver behind the loader; ``None``: not on this machine."""
    for name in _COMPUTE_LIBRARIES:
        if path := next(_libraries(name, root, environment), None):
            return path
    return None


def compute_driver_version(
    root: Path = Path("/"), environment: Mapping[str, str] = os.environ
) -> str:
    """Of the compute driver, from the name of its library's file; empty: unknown."""
    path = find_compute_driver(root, environment)
    found = re.search(r"\.so\.(\d+\.\d+[\d.]*)$", path.resolve().name) if path else None
    return found[1] if found else ""


def _card(node: Path, root: Path) -> Card | None:
    device = node / "device"
    if _hexadecimal(device / "vendor") != VENDOR_ID:
        return None
    device_id = _hexadecimal(device / "device")
    tiles = sorted(device.glob("tile[0-9]*"))
    sizes = [_decimal(tile / "physical_vram_size_bytes") for tile in tiles]
    return Card(
        address=device.resolve().name,
        device_id=device_id,
        render_node=node.name,
        num_tiles=max(len(tiles), 1),
        memory_bytes=sum(sizes) if all(sizes) else 0,
        is_openable=os.access(root / "dev/dri" / node.name, os.R_OK | os.W_OK),
    )


def _units(card: Card, is_tile_device: bool) -> Iterator[DeviceInfo]:
    """What Level Zero makes of a card; numbered and given a driver later."""
    count = card.num_tiles if is_tile_device else 1
    for tile in range(count):
        yield DeviceInfo(
            index=0,
            name=name_of(card.device_id),
            uuid=card.address if count == 1 else f"{card.address}/{tile}",
            arch=family_of(card.device_id),
            memory_bytes=card.memory_bytes // count,
            is_integrated=card.is_integrated,
        )


def _tile_is_device(environment: Mapping[str, str]) -> bool:
    hierarchy = environment.get(HIERARCHY_ENV, "FLAT").upper()
    if hierarchy not in _TILE_IS_DEVICE:
        raise ConfigError(
            f"{HIERARCHY_ENV}={environment[HIERARCHY_ENV]} is none of "
            f"{', '.join(_TILE_IS_DEVICE)}, so it cannot be told what a device is; unset it"
        )
    return _TILE_IS_DEVICE[hierarchy]


def _visible(count: int, environment: Mapping[str, str]) -> tuple[int, ...]:
    mask = environment.get(VISIBLE_DEVICES_ENV)
    if mask is not None and not mask.strip():
        raise ConfigError(
            f"{VISIBLE_DEVICES_ENV} is set and empty, which drivers do not read alike; unset it to "
            "use every device"
        )
    if parts := [one.strip() for one in (mask or "").split(",") if "." in one]:
        raise ConfigError(
            f"{VISIBLE_DEVICES_ENV}={mask} names parts of devices ({', '.join(parts)}). Leave "
            f"{HIERARCHY_ENV} at FLAT, where each tile is a device, and name tiles by their numbers"
        )
    # the driver's own order stays, whatever the mask's
    return read_device_mask(mask, [""] * count, variable=VISIBLE_DEVICES_ENV, keeps_order=False)


def _check_alike(units: list[DeviceInfo], problem: str) -> None:
    kinds = {(unit.arch, unit.memory_bytes, unit.is_integrated) for unit in units}
    if len(kinds) > 1:
        names = ", ".join(f"{unit.name} at {unit.uuid}" for unit in units)
        raise ConfigError(
            f"this machine has unlike devices ({names}), and {problem}: set {ORDER_ENV}=1, so that "
            "devices are numbered in the order of their PCI addresses"
        )


def _libraries(name: str, root: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    searched = environment.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    folders = [*(Path(one) for one in searched if one), *(root / one for one in _LIBRARY_FOLDERS)]
    return (folder / name for folder in folders if (folder / name).exists())


def _hexadecimal(path: Path) -> int:
    return int(_text(path) or "0", 16)


def _decimal(path: Path) -> int:
    text = _text(path)
    return int(text) if text.isdecimal() else 0


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except OSError:
        return ""
