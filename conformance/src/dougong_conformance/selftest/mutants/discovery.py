"""Plugins that are found wrongly: masks, identities, imports with consequences.

Nothing at the head of this file imports torch: children that only discover load it.
"""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dougong.contracts import Available, NotHere, ProbeAnswer

from dougong_conformance.selftest.mutant import mutant
from dougong_conformance.selftest.reshape import with_descriptor, with_platform, with_runtime
from dougong_conformance.session import PluginUnderTest


def _with_probe(
    plugin: PluginUnderTest, probe: Callable[[Callable[[], ProbeAnswer]], Any]
) -> PluginUnderTest:
    good = plugin.descriptor.probe
    return with_descriptor(plugin, probe=lambda: probe(good))


def _with_mask(
    plugin: PluginUnderTest, change: Callable[[str | None], str | None]
) -> PluginUnderTest:
    """The probe sees another mask than the environment has."""

    def probe(good: Callable[[], ProbeAnswer]) -> ProbeAnswer:
        variable = plugin.make_platform().visible_devices_env
        told = os.environ.get(variable)
        seen = change(told)
        if seen is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = seen
        try:
            return good()
        finally:
            if told is not None:
                os.environ[variable] = told

    return _with_probe(plugin, probe)


@mutant("D01", "the probe ignores the mask of devices", killer="discovery.mask_counts")
def d01(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with_mask(plugin, lambda _mask: None)


@mutant(
    "D02",
    "masked devices are sorted, so '3,1' maps device 0 to the wrong one",
    killer="discovery.mask_keeps_its_order",
)
def d02(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with_mask(plugin, lambda mask: mask and ",".join(sorted(mask.split(","))))


@mutant("D03", "an empty mask is taken for none", killer="discovery.empty_mask_is_none")
def d03(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with_mask(plugin, lambda mask: mask or None)


@mutant("N10", "a mask that names no device is ignored", killer="discovery.bad_mask_is_refused")
def n10(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(mask: str | None) -> str | None:
        known = mask is not None and all(p.isdigit() and int(p) < 64 for p in mask.split(","))
        return mask if known or mask == "" else None

    return _with_mask(plugin, change)


@mutant(
    "N11",
    "the runtime counts devices that the mask hides",
    killer="discovery.runtime_heeds_the_mask",
    needs_process=True,
)
def n11(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_runtime(plugin, lambda _good: {"device_count": lambda self: 8})


@mutant("D05", "the uuid is drawn anew in each process", killer="identity.uuid_is_stable")
def d05(plugin: PluginUnderTest) -> PluginUnderTest:
    drawn = uuid.uuid4().hex

    def probe(good: Callable[[], ProbeAnswer]) -> ProbeAnswer:
        answer = good()
        if not isinstance(answer, Available):
            return answer
        return Available(tuple(replace(one, uuid=f"{drawn}-{one.index}") for one in answer.devices))

    return _with_probe(plugin, probe)


@mutant(
    "D10",
    "loading the plugin opens the device",
    killer="discovery.fork_after_loading_works",
    needs_process=True,
)
def d10(plugin: PluginUnderTest) -> PluginUnderTest:
    make = plugin.make_platform

    def opened() -> Any:
        import torch

        platform = make()
        platform.runtime.set_device(0)
        torch.zeros(3, device=platform.runtime.torch_device(0)).add_(1)
        return platform

    return replace(plugin, make_platform=opened)


@mutant(
    "D11",
    "a runtime that cannot start is swallowed, and the start goes on elsewhere",
    killer="discovery.broken_runtime_is_loud",
)
def d11(plugin: PluginUnderTest) -> PluginUnderTest:
    def probe(good: Callable[[], ProbeAnswer]) -> ProbeAnswer:
        try:
            return good()
        except Exception:  # noqa: BLE001 - the defect
            return NotHere("no device was found")

    return _with_probe(plugin, probe)


@mutant("N12", "tensors are made on the host instead", killer="discovery.never_another_platform")
def n12(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def torch_device(self: Any, device_index: int) -> Any:
            import torch

            right = good.torch_device(self, device_index)
            return torch.device("meta" if right.type == "cpu" else "cpu")

        return {"torch_device": torch_device}

    return with_runtime(plugin, members)


@mutant("D13", "claims change once the device is open", killer="discovery.queries_are_idempotent")
def d13(plugin: PluginUnderTest) -> PluginUnderTest:
    is_open = threading.Event()

    def of_runtime(good: Any) -> dict[str, Any]:
        def set_device(self: Any, device_index: int) -> None:
            good.set_device(self, device_index)
            is_open.set()

        return {"set_device": set_device}

    def of_platform(good: Any) -> dict[str, Any]:
        def claims(self: Any, arch: str) -> Any:
            told = good.claims(self, arch)
            return replace(told, max_steps_in_flight=2) if is_open.is_set() else told

        return {"claims": claims}

    return with_platform(with_runtime(plugin, of_runtime), of_platform)


@mutant(
    "N13",
    "an unknown family gets the claims of the best known one",
    killer="discovery.unknown_family_is_generic",
)
def n13(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def claims(self: Any, arch: str) -> Any:
            return replace(good.claims(self, arch), is_generic=False)

        return {"claims": claims}

    return with_platform(plugin, members)


@mutant("N14", "the probe imports torch", killer="discovery.import_is_inert")
def n14(plugin: PluginUnderTest) -> PluginUnderTest:
    def probe(good: Callable[[], ProbeAnswer]) -> ProbeAnswer:
        sys.modules.setdefault("torch", sys)  # as good as the seconds that the import takes
        return good()

    return _with_probe(plugin, probe)


@mutant("N15", "the probe leaves a thread behind", killer="discovery.import_is_inert")
def n15(plugin: PluginUnderTest) -> PluginUnderTest:
    def probe(good: Callable[[], ProbeAnswer]) -> ProbeAnswer:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        return good()

    return _with_probe(plugin, probe)


@mutant(
    "N16",
    "claims are read from the device",
    killer="discovery.platform_needs_no_runtime",
    needs_process=True,
)
def n16(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def claims(self: Any, arch: str) -> Any:
            import torch

            self.runtime.set_device(0)
            torch.zeros(1, device=self.runtime.torch_device(0)).add_(1)
            return good.claims(self, arch)

        return {"claims": claims}

    return with_platform(plugin, members)


@mutant(
    "N17",
    "the probe gives up where another vendor's wheel is installed",
    killer="discovery.two_plugins_get_along",
)
def n17(plugin: PluginUnderTest) -> PluginUnderTest:
    def probe(good: Callable[[], ProbeAnswer]) -> ProbeAnswer:
        from dougong.platforms.entry_points import find_entry_points

        others = {point.name for point in find_entry_points()} - {"cpu", "sim"}
        mine = {name for name in others if name.startswith("mutant-")}
        return NotHere("another platform is here") if others - mine else good()

    return _with_probe(plugin, probe)


@mutant("N18", "set_device takes any index", killer="discovery.bad_index_is_typed")
def n18(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def set_device(self: Any, device_index: int) -> None:
            good.set_device(self, device_index % good.device_count(self))

        return {"set_device": set_device}

    return with_runtime(plugin, members)


@mutant("N19", "devices belong to no family", killer="discovery.probe_is_typed")
def n19(plugin: PluginUnderTest) -> PluginUnderTest:
    def probe(good: Callable[[], ProbeAnswer]) -> ProbeAnswer:
        answer = good()
        if not isinstance(answer, Available):
            return answer
        return Available(tuple(replace(one, arch="") for one in answer.devices))

    return _with_probe(plugin, probe)
