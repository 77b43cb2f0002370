"""A vendor's platform over another device: everything of the plugin, but the device below it.

Ops, attention, KV layout, proposals for the configuration, worker and error texts are the plugin's
own. Two kinds:

* over another platform's device (``device="sim"``): that one's runtime, memory and collectives take
  the place of the vendor's, and references the place of the vendor's ops. It shows how the plugin
  behaves in an engine; of the vendor's runtime it shows nothing, so it is no rung.
* over the vendor's own runtime (``device=""``), where the library below that runtime is a double.
  This is what rung L3 means.

Importing this module imports neither torch nor a plugin, and making a descriptor loads no platform:
the core asks for one before it has chosen anything.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, cast

from dougong.contracts import (
    Available,
    Claims,
    DeviceFacts,
    DeviceInfo,
    DeviceRuntime,
    Fault,
    KernelReport,
    Platform,
    PlatformPlugin,
    ProbeAnswer,
)
from dougong.platforms.entry_points import find_entry_points

from dougong_conformance.results import DOUBLE_FEATURE, REPLACED_RUNTIME_FEATURE


@dataclass(frozen=True, slots=True, kw_only=True)
class Double:
    """What a double is made of; plain data, so that every process makes the same.

    Attributes:
        plugin: Name of the vendor's plugin, as its entry point has it: ``"ascend"``.
        arch: Chip family that its devices are said to be.
        device: Name of the platform whose device takes the place of the vendor's: ``"sim"``,
            ``"cpu"``. Empty: the vendor's own runtime stays, over a double of its library.
        references: ``"module:function"``, called once in each process before the plugin's kernels
            are imported, after the device is loaded. It registers what stands in for the vendor's
            ops (`stand_in.install`) and returns a `KernelReport` of it; ``None`` is an empty one.
        import_path: Folder in which ``references`` is found, if it is on no path already.
        claimed: Field of `Claims` → value instead of the family's: what the double cannot do, or
            can do and the chip cannot. Its names stand in the device's name, where reports show it.
        attn_backends: Name → import string, over the plugin's own in the plugin's order; likewise.
        memory_bytes: Of a device; 0: as ``device`` has it. Needed where that is empty.
        num_devices: Where ``device`` is empty.
        driver_version: That conditions see; empty: as ``device`` has it.
        runtime_version: Likewise.
    """

    plugin: str
    arch: str
    device: str = "sim"
    references: str = ""
    import_path: str = ""
    claimed: Mapping[str, Any] | None = None
    attn_backends: Mapping[str, str] | None = None
    memory_bytes: int = 0
    num_devices: int = 1
    driver_version: str = ""
    runtime_version: str = ""

    @property
    def changed(self) -> tuple[str, ...]:
        """What of the plugin's own answers is another one here."""
        return (*sorted(self.claimed or ()), *sorted(self.attn_backends or ()))

    @property
    def name(self) -> str:
        """As typed after ``--platform``: a double never has the name of what it doubles."""
        return f"{self.plugin}-double"


def descriptor_of(double: Double) -> PlatformPlugin:
    """The descriptor of a double; neither its platform nor its hooks are loaded."""
    vendor = _descriptor(double.plugin)
    return replace(
        vendor,
        name=double.name,
        probe=lambda: probe(double),
        platform="",  # whoever installs it names the module that it wrote
        auto_select=False,
    )


def probe(double: Double) -> ProbeAnswer:
    """The devices that take part, called what the double is."""
    if not double.device:
        return Available(tuple(_invented(double, index) for index in range(double.num_devices)))
    answer = _descriptor(double.device).probe()
    if not isinstance(answer, Available):
        return answer
    return Available(
        tuple(
            replace(
                info,
                name=_device_name(double, info.name),
                arch=double.arch,
                memory_bytes=double.memory_bytes or info.memory_bytes,
                driver_version=double.driver_version or info.driver_version,
            )
            for info in answer.devices
        )
    )


def platform_of(double: Double) -> type[Platform]:
    """The platform class of a double of an installed plugin."""
    if double.import_path and double.import_path not in sys.path:
        sys.path.insert(0, double.import_path)
    return on_device(_platform_class(double.plugin), double)


def on_device(vendor_class: type[Platform], double: Double) -> type[Platform]:
    """A vendor's platform class over another device.

    Args:
        vendor_class: The plugin's; it is subclassed, and nothing in it is changed.
        double: What takes the place of what; ``plugin`` gives the name only.
    """
    if not double.device:
        return type(
            f"{vendor_class.__name__}OverDouble",
            (_Doubled, vendor_class),
            {"_double": double, "name": double.name},
        )
    device_class = _platform_class(double.device)
    identity = ("device_type", "dispatch_key", "dist_backend", "visible_devices_env")
    return type(
        f"{vendor_class.__name__}On{device_class.__name__}",
        (_OnDevice, _Doubled, vendor_class),
        {
            "_double": double,
            "name": double.name,
            "_device_class": device_class,
            **{field: getattr(device_class, field) for field in identity},
        },
    )


class _Doubled(Platform):
    """What every double says of itself."""

    _double: ClassVar[Double]

    def claims(self, arch: str) -> Claims:
        """The family's, marked."""
        claims = super().claims(arch)  # type: ignore[safe-super]  # the vendor's class stands next
        marked = replace(claims, features=claims.features | {DOUBLE_FEATURE})
        return replace(marked, **(self._double.claimed or {}))

    def get_attn_backends(self) -> Mapping[str, str]:
        """The plugin's, with those that the double has in their place."""
        return {**super().get_attn_backends(), **(self._double.attn_backends or {})}

    def facts(self, device_index: int) -> DeviceFacts:
        """As the double was made; the vendor's management files are not asked."""
        info = _invented(self._double, device_index)
        return DeviceFacts(
            device_index=device_index,
            name=info.name,
            arch=info.arch,
            memory_total_bytes=info.memory_bytes,
            driver_version=self._double.driver_version,
            runtime_version=self._double.runtime_version,
        )

    @property
    def facts_open_context(self) -> bool:
        """They are written down."""
        return False

    def import_kernels(self) -> KernelReport:
        """References first, then whatever the plugin binds; what a reference stands in for is not
        missing."""
        stood_in = _install_references(self._double)
        own = super().import_kernels()
        present = {one.partition(" ")[0] for one in stood_in.loaded}
        missing = {name: why for name, why in own.missing.items() if name not in present}
        loaded = (*own.loaded, *(one for one in stood_in.loaded if one not in own.loaded))
        return KernelReport(loaded=loaded, missing={**missing, **stood_in.missing})


class _OnDevice(_Doubled):
    """What comes from the device that takes the vendor's place."""

    _device_class: ClassVar[type[Platform]]

    @cached_property
    def _device(self) -> Platform:
        return self._device_class()

    def claims(self, arch: str) -> Claims:
        """The family's, less what the other device cannot do."""
        claims, able = super().claims(arch), self._device.claims(self._device_arch())
        dtypes = tuple(one for one in claims.dtypes if one in able.dtypes)
        mine = replace(
            claims,
            dtypes=dtypes or able.dtypes[:1],
            kv_dtypes=tuple(one for one in claims.kv_dtypes if one in able.kv_dtypes) or dtypes,
            collective_dtypes=able.collective_dtypes,
            features=claims.features | {REPLACED_RUNTIME_FEATURE},
            graph_capture=False,
            pin_memory=able.pin_memory,
            async_execution=claims.async_execution and able.async_execution,
            triton=False,
            compile_backends=(),
            max_steps_in_flight=min(claims.max_steps_in_flight, able.max_steps_in_flight),
        )
        return replace(mine, **(self._double.claimed or {}))

    def facts(self, device_index: int) -> DeviceFacts:
        """The other device's, called what the double is."""
        facts, double = self._device.facts(device_index), self._double
        return replace(
            facts,
            name=_device_name(double, facts.name),
            arch=double.arch,
            memory_total_bytes=double.memory_bytes or facts.memory_total_bytes,
            driver_version=double.driver_version or facts.driver_version,
            runtime_version=double.runtime_version or facts.runtime_version,
        )

    @property
    def runtime(self) -> DeviceRuntime:
        """The other device's."""
        return self._device.runtime

    def import_kernels(self) -> KernelReport:
        """The other device is loaded first, for references may need it."""
        self._device.import_kernels()
        return super().import_kernels()

    def get_device_communicator_cls(self) -> str:
        """The other device's: no collective of the vendor's knows its memory."""
        return self._device.get_device_communicator_cls()

    def get_graph_runner_cls(self) -> str | None:
        """None: the vendor's would capture on a device that is not here."""
        return None

    def classify_error(self, exc: BaseException) -> Fault | None:
        """The plugin knows its own errors; the other device's are known by its own platform."""
        return super().classify_error(exc) or self._device.classify_error(exc)

    def _device_arch(self) -> str:
        answer = _descriptor(self._double.device).probe()
        return answer.devices[0].arch if isinstance(answer, Available) else ""


_installed: dict[str, KernelReport] = {}


def _install_references(double: Double) -> KernelReport:
    """Once per process, for torch takes a schema once."""
    if not double.references:
        return KernelReport()
    if double.references not in _installed:
        module, _, function = double.references.partition(":")
        report = getattr(importlib.import_module(module), function)()
        _installed[double.references] = report or KernelReport()
    return _installed[double.references]


def _invented(double: Double, index: int) -> DeviceInfo:
    return DeviceInfo(
        index=index,
        name=_device_name(double, "double"),
        arch=double.arch,
        memory_bytes=double.memory_bytes,
        driver_version=double.driver_version,
    )


def _device_name(double: Double, below: str) -> str:
    changed = f"; not as the plugin says: {', '.join(double.changed)}" if double.changed else ""
    return f"{double.arch} ({below}{changed})"


def _descriptor(name: str) -> PlatformPlugin:
    found = [point for point in find_entry_points() if point.name == name and not point.shadowed_by]
    if not found:
        names: Sequence[str] = sorted({point.name for point in find_entry_points()})
        raise LookupError(f"no plugin named {name!r} is installed; there are {', '.join(names)}")
    return cast("PlatformPlugin", found[0].load())


def _platform_class(name: str) -> type[Platform]:
    module, _, attribute = (_descriptor(name).platform or "").partition(":")
    return cast("type[Platform]", getattr(importlib.import_module(module), attribute))
