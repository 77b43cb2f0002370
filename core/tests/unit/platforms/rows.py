"""Rows and descriptors for tests that need no installed plugin."""

from __future__ import annotations

from dougong.contracts import Available, DeviceInfo, PlatformPlugin
from dougong.platforms.table import PluginRow, Verdict

DEVICE = DeviceInfo(index=0, name="Fake 1", uuid="u0", arch="fake1", memory_bytes=8 << 30)


def row(
    name: str,
    verdict: Verdict = Verdict.AVAILABLE,
    reason: str = "",
    *,
    platform: str | None = "nobody.imports:This",
    hooks: str | None = None,
    auto_select: bool = True,
    for_platforms: tuple[str, ...] = (),
    devices: tuple[DeviceInfo, ...] = (DEVICE,),
    distribution: str | None = None,
) -> PluginRow:
    """A row of a wheel called ``<name>plat 1.0``."""
    plugin = PlatformPlugin(
        name=name,
        requires_contract=">=1.0,<2",
        probe=lambda: Available(devices),
        platform=platform,
        hooks=hooks,
        for_platforms=for_platforms,
        auto_select=auto_select,
    )
    distribution = distribution or f"{name}plat"
    return PluginRow(
        name=name,
        distribution=distribution,
        version="1.0",
        path=f"/site/{distribution}-1.0.dist-info",
        entry_point=f"{name}plat.plugin:plugin",
        verdict=verdict,
        reason=reason,
        devices=devices if verdict is Verdict.AVAILABLE else (),
        is_extension=platform is None,
        plugin=plugin,
    )
