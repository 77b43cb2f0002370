"""A machine as its driver shows it, in a folder that stands for ``/``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dougong_rocm.driver import Machine
from dougong_rocm.topology import DRIVER_VERSION, TOPOLOGY

GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One GPU's node."""

    target: int = 90402
    serial: int = 0
    memory: int = 64 * GIB
    used: int = GIB
    cpu_cores: int = 0
    has_drm: bool = True
    is_readable: bool = True


TWO_CARDS = (Card(serial=0xA), Card(serial=0xB, target=90010))


def build(
    root: Path,
    cards: Sequence[Card] = TWO_CARDS,
    environment: Mapping[str, str] | None = None,
    *,
    driver: str = "6.12.12",
) -> Machine:
    """A host processor, then the cards."""
    (root / "dev").mkdir(parents=True)
    (root / "dev" / "kfd").touch()
    _write(root / DRIVER_VERSION, driver)
    _write(root / TOPOLOGY / "0" / "properties", "cpu_cores_count 64\nsimd_count 0\n")
    for number, card in enumerate(cards, 1):
        _write_card(root, number, card)
    return Machine(root, environment or {})


def _write_card(root: Path, number: int, card: Card) -> None:
    folder = root / TOPOLOGY / str(number)
    lines = {
        "cpu_cores_count": card.cpu_cores,
        "simd_count": 304 * 4,
        "simd_per_cu": 4,
        "gfx_target_version": card.target,
        "unique_id": card.serial,
        "drm_render_minor": 127 + number if card.has_drm else 0,
    }
    text = "".join(f"{name} {value}\n" for name, value in lines.items()) if card.is_readable else ""
    _write(folder / "properties", text)
    bank = f"heap_type 1\nsize_in_bytes {card.memory}\n"
    _write(folder / "mem_banks" / "0" / "properties", bank)
    if card.has_drm:
        device = root / f"sys/class/drm/renderD{127 + number}/device"
        _write(device / "mem_info_vram_total", f"{card.memory}\n")
        _write(device / "mem_info_vram_used", f"{card.used}\n")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
