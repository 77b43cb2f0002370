"""Plugin side: the plugin, found and loaded as an engine would, and what procedures share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dougong.contracts import DeviceRuntime, KernelReport, Platform, PlatformPlugin, Registration
from dougong.platforms import LoadedPlatform, open_platform

if TYPE_CHECKING:
    import torch
    from dougong.contracts import AttentionBackend
    from dougong.ops.registry import OpRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginUnderTest:
    """A plugin, as discovery found and loaded it.

    Attributes:
        name: As typed after ``--platform``.
        distribution: Of the wheel.
        version: Of the wheel.
        descriptor: What the entry point names.
        make_platform: Makes an instance; called once per session.
        registrations: Ops and models that it and its extensions bring.
        import_path: Folder that has to be on the path for a child process to find it; empty:
            it is installed.
    """

    name: str
    distribution: str
    version: str
    descriptor: PlatformPlugin
    make_platform: Callable[[], Platform]
    registrations: tuple[Registration, ...] = ()
    import_path: str = ""


def load_plugin(name: str) -> PluginUnderTest:
    """Find, check and load a platform plugin by its name.

    Raises:
        ConfigError: There is none of that name, or it is not here.
        PluginError: It is broken or refused.
    """
    loaded = open_platform(name)
    return of_loaded(loaded)


def of_loaded(loaded: LoadedPlatform) -> PluginUnderTest:
    """The plugin of an opened platform."""
    row = loaded.selection.row
    if row.plugin is None:
        raise RuntimeError(f"{row.wheel} was chosen without a descriptor")
    return PluginUnderTest(
        name=row.name,
        distribution=row.distribution,
        version=row.version,
        descriptor=row.plugin,
        make_platform=lambda: loaded.platform,
        registrations=loaded.registrations,
    )


@dataclass
class Session:
    """What the procedures of one process share.

    Attributes:
        plugin: Under test.
        device_index: Device that procedures use where they name none.
        kept: Objects that one procedure leaves for another, by a name that the check chose.
    """

    plugin: PluginUnderTest
    device_index: int = 0
    kept: dict[str, Any] = field(default_factory=dict)
    _is_open: bool = False

    @cached_property
    def platform(self) -> Platform:
        """The instance of this session; touches no device."""
        return self.plugin.make_platform()

    @property
    def runtime(self) -> DeviceRuntime:
        """The platform's, with no device set yet."""
        return self.platform.runtime

    @cached_property
    def kernels(self) -> KernelReport:
        """Opens the device of this session and imports its kernels, once."""
        self.runtime.set_device(self.device_index)
        report = self.platform.import_kernels()
        self._is_open = True
        return report

    @property
    def device(self) -> torch.device:
        """This session's torch device, opened."""
        _ = self.kernels
        return self.runtime.torch_device(self.device_index)

    @cached_property
    def registry(self) -> OpRegistry:
        """Ops of the core and of the plugin, judged."""
        from dougong.ops.registry import OpRegistry

        return OpRegistry.from_registrations(self.plugin.registrations)

    @cached_property
    def backends(self) -> dict[str, AttentionBackend]:
        """Attention backends by name, preferred first."""
        from dougong.attention.loading import load_backends

        return load_backends(self.platform)

    def close(self) -> None:
        """Let everything go."""
        self.kept.clear()
        if self._is_open:
            self.runtime.empty_cache()
