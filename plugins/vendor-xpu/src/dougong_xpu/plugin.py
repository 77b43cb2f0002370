"""What the core reads first: who this is, and whether an Intel GPU can be used here.

Every ``dougong`` command imports this module, on machines without the device too. So it imports
neither torch nor a library of the vendor's, and opens nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from dougong.contracts import Available, NotHere, PlatformPlugin, ProbeAnswer

from dougong_xpu.driver import Card, find_cards, find_compute_driver, find_loader, list_devices
from dougong_xpu.providers import torch_problem

_PLACES = "in LD_LIBRARY_PATH or the system's folders"


def probe() -> ProbeAnswer:
    """Which devices are here, or everything that is missing, with what to install.

    Raises:
        ConfigError: There are devices, and a variable leaves it open which of them are meant.
    """
    cards = find_cards()
    if problems := tuple(_problems(cards)):
        return NotHere("; ".join(problems))
    return Available(list_devices())


def _problems(cards: tuple[Card, ...]) -> Iterator[str]:
    if not cards:
        yield (
            "no Intel GPU: /sys/class/drm has no render node of vendor 0x8086 (kernel driver xe "
            "or i915)"
        )
        return
    if closed := [card for card in cards if not card.is_openable]:
        nodes = ", ".join(f"/dev/dri/{card.render_node}" for card in closed)
        yield (
            f"{nodes} cannot be opened by this user: add it to the group that owns it (render), in "
            "a container with --device /dev/dri and --group-add"
        )
    if find_loader() is None:
        yield (
            f"no libze_loader.so.1 {_PLACES}: install the Level Zero loader (package libze1 or "
            "level-zero)"
        )
    if find_compute_driver() is None:
        yield (
            f"no libze_intel_gpu.so.1 {_PLACES}: install Intel's compute driver (package "
            "libze-intel-gpu1 or intel-level-zero-gpu)"
        )
    if problem := torch_problem():
        yield problem


plugin = PlatformPlugin(
    name="xpu",
    requires_contract=">=1.0,<2",
    probe=probe,
    platform="dougong_xpu.platform:XpuPlatform",
    hooks="dougong_xpu.hooks",
)
