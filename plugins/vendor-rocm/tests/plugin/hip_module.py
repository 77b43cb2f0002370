"""``torch.cuda`` of a torch that was built for HIP, as far as this wheel calls it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any


class FakeGraph:
    """A graph that writes down what was asked of it."""

    def __init__(self, told: list[tuple[Any, ...]]) -> None:
        self._told = told

    def capture_begin(self, *, pool: Any, capture_error_mode: str) -> None:
        self._told.append(("begin", pool, capture_error_mode))

    def capture_end(self) -> None:
        self._told.append(("end",))

    def replay(self) -> None:
        self._told.append(("replay",))

    def reset(self) -> None:
        self._told.append(("reset",))


class FakeHip:
    """The module; ``told`` has its calls in order."""

    def __init__(self, archs: tuple[str, ...]) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.archs = archs
        self.reserved = 0

    def set_device(self, index: int) -> None:
        self.told.append(("set_device", index))

    def device_count(self) -> int:
        self.told.append(("device_count",))
        return len(self.archs)

    def get_device_name(self, index: int) -> str:
        self.told.append(("get_device_name", index))
        return "AMD Instinct MI300X"

    def get_device_properties(self, index: int) -> Any:
        self.told.append(("get_device_properties", index))
        return SimpleNamespace(gcnArchName=f"{self.archs[index]}:sramecc+:xnack-")

    def mem_get_info(self, index: int) -> tuple[int, int]:
        self.told.append(("mem_get_info", index))
        return 5, 7

    def synchronize(self, device: Any = None) -> None:
        self.told.append(("synchronize", device))

    def memory_reserved(self, device: Any = None) -> int:
        self.reserved += 100
        return self.reserved

    def graph_pool_handle(self) -> tuple[int, int]:
        return (0, 1)

    def Stream(self, device: Any) -> object:  # noqa: N802 - torch's name
        return object()

    def CUDAGraph(self) -> FakeGraph:  # noqa: N802 - torch's name
        return FakeGraph(self.told)

    @contextmanager
    def stream(self, stream: object) -> Iterator[None]:
        yield
