"""Facts about the machine that belong beside every figure. Standard library only."""

from __future__ import annotations

import os
import platform
from pathlib import Path

FLAGS_OF_INTEREST = (
    "avx2",
    "avx512f",
    "avx512_bf16",
    "avx512_fp16",
    "avx512_vnni",
    "avx512vbmi",
    "amx_bf16",
    "amx_int8",
    "asimd",
    "bf16",
    "i8mm",
    "sve",
)


def cpu_flags() -> frozenset[str]:
    """Instruction sets as the kernel names them; empty where there is no ``/proc/cpuinfo``."""
    for key in ("flags", "Features"):
        if value := _cpuinfo(key):
            return frozenset(value.split())
    return frozenset()


def machine_facts() -> dict[str, object]:
    """CPU, memory and system, as plain JSON values."""
    flags = cpu_flags()
    return {
        "cpu": _cpuinfo("model name") or platform.processor() or platform.machine(),
        "cpu_family_model": f"{_cpuinfo('cpu family')}/{_cpuinfo('model')}",
        "flags": [flag for flag in FLAGS_OF_INTEREST if flag in flags],
        "cores": len(os.sched_getaffinity(0)),
        "last_level_cache": _last_level_cache(),
        "memory_gib": round(memory_bytes() / 2**30, 1),
        "kernel": platform.release(),
        "is_virtual": "hypervisor" in flags,
        "python": platform.python_version(),
    }


def memory_bytes() -> int:
    """Physical memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def load_average() -> float:
    """Runnable processes, averaged over the last minute."""
    return round(os.getloadavg()[0], 2)


def cpu_ticks() -> tuple[float, float]:
    """Seconds of CPU time since boot, over all cores: ``(busy, stolen by the hypervisor)``."""
    fields = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    hertz = os.sysconf("SC_CLK_TCK")
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq) / hertz, steal / hertz


def _cpuinfo(key: str) -> str:
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return ""
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def _last_level_cache() -> str:
    sizes = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
    return sizes[-1].read_text().strip() if sizes else "unknown"
