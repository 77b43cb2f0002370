"""Graph runners that replay something else than was captured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dougong_conformance.selftest.mutant import mutant
from dougong_conformance.selftest.reshape import subclass, with_backends, with_named_class
from dougong_conformance.selftest.steps import with_common, with_lengths
from dougong_conformance.session import PluginUnderTest


def _with_runner(plugin: PluginUnderTest, members: Any) -> PluginUnderTest:
    return with_named_class(plugin, "get_graph_runner_cls", lambda good: subclass(good, members))


@mutant(
    "G01",
    "a graph runs with its buffers as they were at the first replay",
    killer="graph.replay_sees_new_inputs",
)
def g01(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def replay(self: Any, key: Any) -> None:
            replayed = self.__dict__.setdefault("_replayed", set())
            if key not in replayed:
                good.replay(self, key)
                replayed.add(key)

        return {"replay": replay}

    return _with_runner(plugin, members)


@mutant("G02", "a replay gives the output of the capture", killer="graph.replay_sees_new_inputs")
def g02(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with_runner(plugin, lambda _good: {"replay": lambda self, key: None})


@mutant(
    "G03",
    "a replay goes to a stream that nobody waits for",
    killer="graph.replay_sees_new_inputs",
    mode="lazy",
)
def g03(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def replay(self: Any, key: Any) -> None:
            import torch

            streams = self.__dict__.setdefault("_streams", [])
            streams.append(torch.Stream(self.device))
            with streams[-1]:
                good.replay(self, key)

        return {"replay": replay}

    return _with_runner(plugin, members)


@mutant(
    "G04", "every key replays the graph captured last", killer="graph.two_graphs_are_independent"
)
def g04(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        @contextmanager
        def capture(self: Any, key: Any) -> Iterator[None]:
            with good.capture(self, key):
                yield
            self.__dict__["_last"] = key

        def replay(self: Any, key: Any) -> None:
            good.replay(self, self.__dict__["_last"])

        return {"capture": capture, "replay": replay}

    return _with_runner(plugin, members)


@mutant("G05", "every capture keeps a MiB for ever", killer="graph.memory_is_bounded")
def g05(plugin: PluginUnderTest) -> PluginUnderTest:
    kept: list[Any] = []

    def members(good: Any) -> dict[str, Any]:
        @contextmanager
        def capture(self: Any, key: Any) -> Iterator[None]:
            import torch

            kept.append(torch.empty(1 << 20, dtype=torch.uint8, device=self.device))
            with good.capture(self, key):
                yield

        return {"capture": capture}

    return _with_runner(plugin, members)


@mutant("G06", "rows of padding are stored in the first row's place", killer="graph.engine_pads")
def g06(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def make_impl(self: Any, request: Any, scale: float) -> Any:
            impl = good.make_impl(self, request, scale)
            impl.__class__ = subclass(type(impl), _writes_padding)
            return impl

        return {"make_impl": make_impl}

    return with_backends(plugin, members)


def _writes_padding(good: Any) -> dict[str, Any]:
    def write_kv(self: Any, k: Any, v: Any, kv_cache: Any, slot_mapping: Any) -> None:
        first = slot_mapping[:1].expand_as(slot_mapping)
        places = slot_mapping.where(slot_mapping >= 0, first)
        good.write_kv(self, k, v, kv_cache, places)

    return {"write_kv": write_kv}


@mutant(
    "G07",
    "lengths are those of the first step with as many rows",
    killer="graph.host_scalars_are_not_baked",
)
def g07(plugin: PluginUnderTest) -> PluginUnderTest:
    first: dict[int, Any] = {}

    def change(common: Any) -> Any:
        longest = int(common.seq_lens_cpu.max())
        if common.max_query_len != 1 or not 2 <= longest < 100:
            return common  # a rehearsal
        baked = first.setdefault(common.num_reqs, common.seq_lens_cpu.clone())
        # Never longer than it is: what was not written yet is not read.
        return with_lengths(common, baked.minimum(common.seq_lens_cpu))

    return with_common(plugin, change)


@mutant("N52", "a capture that fails is passed over in silence", killer="graph.failure_is_loud")
def n52(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        @contextmanager
        def capture(self: Any, key: Any) -> Iterator[None]:
            from contextlib import suppress

            with suppress(Exception), good.capture(self, key):
                try:
                    yield
                except Exception:  # noqa: BLE001 - the defect
                    self.__dict__["_failed"] = key

        return {"capture": capture}

    return _with_runner(plugin, members)


@mutant("N53", "graphs are said to take no memory", killer="graph.memory_is_told")
def n53(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with_runner(plugin, lambda _good: {"memory_bytes": lambda self: 0})


@mutant("N54", "released graphs are still counted", killer="graph.memory_is_told")
def n54(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def memory_bytes(self: Any) -> int:
            now = int(good.memory_bytes(self))
            self.__dict__["_most"] = max(now, self.__dict__.get("_most", 0))
            return int(self.__dict__["_most"])

        return {"memory_bytes": memory_bytes}

    return _with_runner(plugin, members)


@mutant("N55", "a replay waits for the device", killer="graph.replay_does_not_wait", mode="lazy")
def n55(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def replay(self: Any, key: Any) -> None:
            import torch

            torch.accelerator.synchronize()
            good.replay(self, key)

        return {"replay": replay}

    return _with_runner(plugin, members)


@mutant(
    "N56",
    "rows that are not numbers spoil their neighbours in a graph",
    killer="graph.padding_rows_stay_apart",
)
def n56(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        @contextmanager
        def capture(self: Any, key: Any) -> Iterator[None]:
            from torch.utils._python_dispatch import TorchDispatchMode

            class Smears(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's has no types
                def __torch_dispatch__(
                    self, func: Any, types: Any, args: Any = (), kwargs: Any = None
                ) -> Any:
                    result = func(*args, **(kwargs or {}))
                    if func.overloadpacket.__name__ in ("mm", "addmm", "matmul"):
                        result = result + 0.0 * result.sum(dim=0, keepdim=True)
                    return result

            smears: Any = Smears
            with good.capture(self, key), smears():
                yield

        return {"capture": capture}

    return _with_runner(plugin, members)


@mutant(
    "N57", "the engine is told that nothing can be captured", killer="graph.engine_answers_stay"
)
def n57(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(_good: Any) -> dict[str, Any]:
        from dougong.contracts import GraphSupport

        return {"support": GraphSupport()}

    return _with_runner(plugin, members)


@mutant(
    "N58",
    "of a replayed step of several rows only the first is computed",
    killer="graph.engine_answers_stay",
)
def n58(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def replay(self: Any, key: Any) -> None:
            replayed = self.__dict__.setdefault("_count", {})
            replayed[key] = replayed.get(key, 0) + 1
            if replayed[key] % 3:
                good.replay(self, key)

        return {"replay": replay}

    return _with_runner(plugin, members)
