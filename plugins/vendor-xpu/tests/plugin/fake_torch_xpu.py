"""``torch.xpu`` as a build for the device has it, counting what is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Properties:
    """Of one device."""

    name: str = "Intel(R) Arc(TM) B580 Graphics"
    device_id: int = 0xE20B
    total_memory: int = 12 << 30
    max_compute_units: int = 160
    driver_version: str = "1.6.33578+11"


@dataclass
class FakeTorchXpu:
    """Stands where ``torch.get_device_module("xpu")`` would lead.

    Attributes:
        devices: That it counts.
        asked: Names of functions that were called: each of them starts the vendor's runtime.
        memory: Free and total, as it tells them; ``None``: it cannot.
    """

    devices: list[Properties] = field(default_factory=lambda: [Properties()])
    asked: list[str] = field(default_factory=list)
    memory: tuple[int, int] | None = (5, 7)

    def device_count(self) -> int:
        self.asked.append("device_count")
        return len(self.devices)

    def get_device_properties(self, device_index: int) -> Properties:
        self.asked.append("get_device_properties")
        return self.devices[device_index]

    def set_device(self, device_index: int) -> None:
        self.asked.append("set_device")

    def mem_get_info(self, device_index: int) -> tuple[int, int]:
        self.asked.append("mem_get_info")
        if self.memory is None:
            raise RuntimeError("doesn't support querying the available free memory")
        return self.memory

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"torch.xpu has no {name} in this test")
