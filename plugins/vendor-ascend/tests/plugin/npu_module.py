"""A stand-in of ``torch.npu`` that notes what it is asked, in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

GIB = 2**30


class FakeGraph:
    """Notes its replays."""

    def __init__(self, npu: FakeNpu) -> None:
        self._npu = npu

    def replay(self) -> None:
        self._npu.asked.append("replay")

    def reset(self) -> None:
        self._npu.asked.append("reset")


class FakeNpu:
    """As much of the module as this wheel calls.

    Attributes:
        asked: Names of the calls.
        soc: What ``get_soc_version`` answers.
        reserved: Bytes that the allocator holds.
        capture_error: Raised when a capture ends.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.soc = 221
        self.reserved = 0
        self.capture_error: Exception | None = None
        self.config = SimpleNamespace(allow_internal_format=False)
        self.utils = SimpleNamespace(get_cann_version=lambda what: "9.1.0")
        self.jit_compile: bool | None = None
        self.pools: list[object] = []
        self.streams: list[object] = []

    def _note(self, name: str) -> None:
        self.asked.append(name)

    def device_count(self) -> int:
        self._note("device_count")
        return 2

    def set_device(self, device: int) -> None:
        self._note("set_device")

    def get_soc_version(self) -> int:
        self._note("get_soc_version")
        return self.soc

    def get_device_name(self, device: int) -> str:
        self._note("get_device_name")
        return "Ascend910B2"

    def get_device_properties(self, device: int) -> Any:
        self._note("get_device_properties")
        return SimpleNamespace(cube_core_num=24)

    def mem_get_info(self, device: int) -> tuple[int, int]:
        self._note("mem_get_info")
        return 60 * GIB, 64 * GIB

    def synchronize(self, *device: int) -> None:
        self._note(f"synchronize{device}")

    def set_compile_mode(self, *, jit_compile: bool) -> None:
        self.jit_compile = jit_compile

    def memory_reserved(self, device: object) -> int:
        return self.reserved

    def Stream(self, device: object) -> tuple[str, object]:  # noqa: N802 - the vendor's name
        return "stream of", device

    def graph_pool_handle(self) -> object:
        return object()

    def NPUGraph(self) -> FakeGraph:  # noqa: N802 - the vendor's name
        return FakeGraph(self)

    @contextmanager
    def graph(self, graph: FakeGraph, *, pool: object, stream: object) -> Iterator[None]:
        self.pools.append(pool)
        self.streams.append(stream)
        self.reserved //= 2  # entering gives unused memory back
        yield
        if self.capture_error is not None:
            raise self.capture_error
