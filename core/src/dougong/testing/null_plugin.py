"""The null platform's descriptors: with one device or with four, never chosen unless named."""

from __future__ import annotations

from dataclasses import replace

from dougong.contracts import Available, DeviceInfo, PlatformPlugin


def probe() -> Available:
    """One device that does not exist."""
    return _devices(1)


def probe_four() -> Available:
    """Four devices that do not exist, all alike."""
    return _devices(4)


def _devices(count: int) -> Available:
    return Available(
        tuple(
            DeviceInfo(index=index, name="Null", arch="null1", memory_bytes=2**30)
            for index in range(count)
        )
    )


plugin = PlatformPlugin(
    name="null",
    requires_contract=">=1.0,<2",
    probe=probe,
    platform="dougong.testing.null_platform:NullPlatform",
    auto_select=False,
)
plugin_of_four = replace(plugin, probe=probe_four)
