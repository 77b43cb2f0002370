"""Memory that is counted, cleared, copied or given back wrongly."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

from dougong_conformance.selftest.mutant import mutant
from dougong_conformance.selftest.reshape import with_kernel, with_platform, with_runtime
from dougong_conformance.session import PluginUnderTest


def _with_info(plugin: PluginUnderTest, change: Any) -> PluginUnderTest:
    """``change(runtime, index, free, total)`` gives another pair."""

    def members(good: Any) -> dict[str, Any]:
        def memory_info(self: Any, device_index: int) -> Any:
            info = good.memory_info(self, device_index)
            free, total = change(self, device_index, info.free_bytes, info.total_bytes)
            return type(info)(free, total)

        return {"memory_info": memory_info}

    return with_runtime(plugin, members)


@mutant("M01", "memory_info gives the total as free", killer="memory.allocation_moves_free")
def m01(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with_info(plugin, lambda _self, _index, _free, total: (total, total))


@mutant("M02", "memory_info gives total and free in this order", killer="memory.info_is_in_bytes")
def m02(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with_info(plugin, lambda _self, _index, free, total: (total, free))


@mutant("M03", "memory_info counts in MiB", killer="memory.info_is_in_bytes")
def m03(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with_info(plugin, lambda _self, _index, free, total: (free >> 20, total >> 20))


@mutant("M04", "half of what is given back stays lost", killer="memory.nothing_leaks")
def m04(plugin: PluginUnderTest) -> PluginUnderTest:
    lost = {"bytes": 0}

    def change(_self: Any, _index: int, free: int, total: int) -> tuple[int, int]:
        lost["bytes"] += 200 << 20  # what a hundred pieces of a MiB would have left, and more
        return max(1, free - lost["bytes"] + (200 << 20)), total

    return _with_info(plugin, change)


@mutant(
    "M05",
    "what is taken on any device is charged to device 0",
    killer="memory.each_device_counts_its_own",
)
def m05(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def memory_info(self: Any, device_index: int) -> Any:
            all_devices = [good.memory_info(self, i) for i in range(good.device_count(self))]
            own = all_devices[device_index]
            used = sum(one.total_bytes - one.free_bytes for one in all_devices)
            return replace(own, free_bytes=own.total_bytes - (0 if device_index else used))

        return {"memory_info": memory_info}

    return with_runtime(plugin, members)


@mutant(
    "M06", "running out of memory is called a lost device", killer="memory.running_out_is_typed"
)
def m06(plugin: PluginUnderTest) -> PluginUnderTest:
    from dougong.contracts import DeviceLost

    def members(good: Any) -> dict[str, Any]:
        def classify_error(self: Any, exc: BaseException) -> Any:
            fault = good.classify_error(self, exc)
            return fault and replace(fault, kind=DeviceLost)

        return {"classify_error": classify_error}

    return with_platform(plugin, members)


@mutant("M07", "a refused allocation stays counted", killer="memory.running_out_is_survived")
def m07(plugin: PluginUnderTest) -> PluginUnderTest:
    state = {"failed": False}

    def of_platform(good: Any) -> dict[str, Any]:
        def classify_error(self: Any, exc: BaseException) -> Any:
            state["failed"] = True
            return good.classify_error(self, exc)

        return {"classify_error": classify_error}

    def change(_self: Any, _index: int, free: int, total: int) -> tuple[int, int]:
        return (1 << 20 if state["failed"] else free), total

    return _with_info(with_platform(plugin, of_platform), change)


def _with_operator(plugin: PluginUnderTest, operator: str, function: Any) -> PluginUnderTest:
    """An operator of torch that the vendor registered otherwise, as long as the platform lives."""
    from dougong_conformance.selftest.changes import NotOnThisBase

    if plugin.name == "cpu":
        raise NotOnThisBase("the host's operators serve the judge too")

    def members(good: Any) -> dict[str, Any]:
        def import_kernels(self: Any) -> Any:
            import torch

            report = good.import_kernels(self)
            made: Any = torch.library.Library
            library = made("aten", "IMPL")
            library.impl(operator, function, "PrivateUse1")
            self.__dict__["_library"] = library
            return report

        return {"import_kernels": import_kernels}

    return with_platform(plugin, members)


@mutant("M08", "memory is not cleared for zeros", killer="memory.zeros_are_zero")
def m08(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with_operator(plugin, "zero_", lambda tensor: tensor)


@mutant(
    "M09",
    "copies to the host take the memory as it lies, whatever the view",
    killer="memory.strided_copies_arrive",
)
def m09(plugin: PluginUnderTest) -> PluginUnderTest:
    def copy_from(source: Any, target: Any, non_blocking: bool = False) -> Any:
        import torch

        control: Any = importlib.import_module(f"dougong_{plugin.name}.device.control")
        is_down = source.device.type != "cpu" and target.device.type == "cpu"
        if is_down and not source.is_contiguous():
            flat = torch.empty(source.shape).stride()
            source = source.as_strided(source.shape, flat, source.storage_offset())
        there = target if target.device.type == "cpu" else control.host_view(target)
        here = source if source.device.type == "cpu" else control.host_view(source)
        there.copy_(here)
        return target

    return _with_operator(plugin, "_copy_from", copy_from)


@mutant("M10", "offsets into a table are kept as float32", killer="memory.far_rows_are_reached")
def m10(plugin: PluginUnderTest) -> PluginUnderTest:
    import torch

    def embedding(token_ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        width = weight.shape[1]
        first = (token_ids * width).float().unsqueeze(1)
        offsets = first + torch.arange(width, device=weight.device).float()
        return weight.flatten()[offsets.long()]

    return with_kernel(plugin, "embedding", embedding)


@mutant(
    "M12",
    "an event that was recorded behind a copy does not wait for it",
    killer="memory.copies_keep_their_order",
    mode="lazy",
)
def m12(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def new_event(self: Any) -> Any:
            event, elsewhere = good.new_event(self), good.new_stream(self)

            class Elsewhere:
                def record(self, stream: Any = None) -> None:
                    event.record(elsewhere)

                def query(self) -> bool:
                    return bool(event.query())

                def synchronize(self) -> None:
                    event.synchronize()

            return Elsewhere()

        return {"new_event": new_event}

    return with_runtime(plugin, members)


@mutant("N01", "empty_host hands out one buffer again and again", killer="memory.host_buffers_fit")
def n01(plugin: PluginUnderTest) -> PluginUnderTest:
    kept: dict[Any, Any] = {}

    def members(good: Any) -> dict[str, Any]:
        def empty_host(self: Any, shape: Any, dtype: Any) -> Any:
            key = (tuple(shape), dtype)
            if key not in kept:
                kept[key] = good.empty_host(self, shape, dtype)
            return kept[key]

        return {"empty_host": empty_host}

    return with_runtime(plugin, members)


@mutant("N02", "pinned memory is claimed and pageable", killer="memory.host_buffers_are_pinned")
def n02(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(_good: Any) -> dict[str, Any]:
        def empty_host(_self: Any, shape: Any, dtype: Any) -> Any:
            import torch

            return torch.empty(tuple(shape), dtype=dtype)

        return {"empty_host": empty_host}

    from dougong_conformance.selftest.reshape import with_claims

    return with_claims(with_runtime(plugin, members), lambda _claims: {"pin_memory": True})


@mutant("N03", "the peak is what is in use now", killer="memory.peak_is_kept")
def n03(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def peak_memory_bytes(self: Any) -> int:
            info = good.memory_info(self, good.current_device(self))
            return int(info.total_bytes - info.free_bytes)

        return {"peak_memory_bytes": peak_memory_bytes, "reset_peak_memory": lambda self: None}

    return with_runtime(plugin, members)


@mutant("N04", "the peak is never reset", killer="memory.peak_is_kept")
def n04(plugin: PluginUnderTest) -> PluginUnderTest:
    highest = {"bytes": 0}

    def members(good: Any) -> dict[str, Any]:
        def peak_memory_bytes(self: Any) -> int:
            highest["bytes"] = max(highest["bytes"], good.peak_memory_bytes(self))
            return highest["bytes"]

        return {"peak_memory_bytes": peak_memory_bytes}

    return with_runtime(plugin, members)
