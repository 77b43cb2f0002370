"""Plugins that take a fault for something else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dougong_conformance.selftest.mutant import mutant
from dougong_conformance.selftest.reshape import with_platform, with_worker
from dougong_conformance.session import PluginUnderTest


def _with_classes(plugin: PluginUnderTest, change: Any) -> PluginUnderTest:
    """``change(fault)`` is what an exception is called."""

    def members(good: Any) -> dict[str, Any]:
        def classify_error(self: Any, exc: BaseException) -> Any:
            fault = good.classify_error(self, exc)
            return fault and change(fault)

        return {"classify_error": classify_error}

    return with_platform(plugin, members)


@mutant("N65", "a kernel's failure is no fault of the device", killer="worker.fault_in_a_launch")
def n65(plugin: PluginUnderTest) -> PluginUnderTest:
    from dougong.contracts import KernelFault

    return _with_classes(plugin, lambda fault: None if fault.kind is KernelFault else fault)


@mutant("N66", "a lost device is called a kernel's failure", killer="worker.fault_lost_device")
def n66(plugin: PluginUnderTest) -> PluginUnderTest:
    from dougong.contracts import DeviceLost, KernelFault

    def change(fault: Any) -> Any:
        return replace(fault, kind=KernelFault) if fault.kind is DeviceLost else fault

    return _with_classes(plugin, change)


@mutant(
    "N67",
    "the worker drops its model when an allocation fails",
    killer="worker.fault_out_of_memory",
)
def n67(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def submit(self: Any, step: Any, intermediate: Any = None) -> Any:
            from dougong.contracts import OutOfDeviceMemory

            try:
                return good.submit(self, step, intermediate)
            except OutOfDeviceMemory:
                self._runner = None
                raise

        return {"submit": submit}

    return with_worker(plugin, members)


@mutant(
    "N68",
    "a step's result is waited for to the end, whatever was asked",
    killer="worker.fault_slow_device",
    mode="thread",
)
def n68(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def sample(self: Any, handle: Any, grammar: Any = None) -> Any:
            done = good.sample(self, handle, grammar)

            class Patient:
                step_id = step_id_of(done)

                def result(self, timeout_s: float | None = None) -> Any:
                    return done.result()

            return Patient()

        return {"sample": sample}

    return with_worker(plugin, members)


def step_id_of(handle: Any) -> int:
    """Of a step in flight."""
    return int(handle.step_id)
