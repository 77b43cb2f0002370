"""The null platform's descriptor: never chosen unless it is named."""

from __future__ import annotations

from dougong.contracts import Available, DeviceInfo, PlatformPlugin


def probe() -> Available:
    """One device that does not exist."""
    return Available((DeviceInfo(index=0, name="Null", arch="null1", memory_bytes=2**30),))


plugin = PlatformPlugin(
    name="null",
    requires_contract=">=1.0,<2",
    probe=probe,
    platform="dougong.testing.null_platform:NullPlatform",
    auto_select=False,
)
