"""What a run is measured by, beside its tokens: memory, versions, machine."""

from __future__ import annotations

import platform as python
import resource
import sys
from typing import TYPE_CHECKING

import importlib_metadata

from dougong import __version__
from dougong.contracts.version import CONTRACT_VERSION

if TYPE_CHECKING:
    from dougong.engine.start_report import StartReport

_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


def peak_host_bytes() -> int:
    """Most memory this process had in use so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT


def versions() -> dict[str, str]:
    """Of what can change a measurement, by name."""
    return {
        "dougong": __version__,
        "contract": CONTRACT_VERSION,
        "python": python.python_version(),
        "torch": importlib_metadata.version("torch"),
    }


def memory_line(report: StartReport) -> str:
    """Weights, KV cache and the process's peak, for people."""
    memory = report.memory
    return (
        f"{gib(memory.weights)} weights, {gib(memory.kv_cache)} KV cache, "
        f"{gib(peak_host_bytes())} peak of the process"
    )


def gib(num_bytes: float) -> str:
    """Bytes for people."""
    return f"{num_bytes / 1024**3:.2f} GiB"
