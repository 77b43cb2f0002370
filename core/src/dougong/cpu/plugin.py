"""The descriptor of the CPU platform; imports neither torch nor the kernels."""

from __future__ import annotations

import os
import platform as machine

from dougong.contracts import Available, DeviceInfo, PlatformPlugin, ProbeAnswer
from dougong.cpu.memory import read_memory


def probe() -> ProbeAnswer:
    """There always is a CPU."""
    memory = read_memory()
    return Available(
        (
            DeviceInfo(
                index=0,
                name=cpu_name(),
                arch=machine.machine(),
                memory_bytes=memory.total_bytes,
                driver_version=machine.release(),
                is_integrated=True,
            ),
        )
    )


def cpu_name() -> str:
    """As the kernel names it, with the processors this process may use."""
    name = machine.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
        name = names[0] if names else name
    except OSError:
        pass
    return f"{name} ({num_processors()} processors)"


def num_processors() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


plugin = PlatformPlugin(
    name="cpu",
    requires_contract=">=1.0,<2",
    probe=probe,
    platform="dougong.cpu.platform:CpuPlatform",
    hooks="dougong.cpu.kernels",
)
