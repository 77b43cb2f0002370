"""A profile of one rank: by the vendor's profiler, or by PyTorch's."""

from __future__ import annotations

from pathlib import Path

import torch

from dougong.contracts import DeviceRuntime, Profiler


class RankProfiler:
    """The runtime's own `Profiler` where it has one; otherwise PyTorch's, whose Chrome trace is
    written when it stops.

    Args:
        runtime: Of the device.
        rank: For the name of the trace.
    """

    def __init__(self, runtime: DeviceRuntime, rank: int) -> None:
        self._runtime = runtime
        self._rank = rank
        self._running: torch.profiler.profile | None = None

    def start(self, folder: str) -> None:
        """Begin to record into ``folder``."""
        if isinstance(self._runtime, Profiler):
            self._runtime.start(folder)
        else:
            self._running = torch.profiler.profile()
            self._running.start()

    def stop(self, folder: str) -> None:
        """End the recording that was started, if one was."""
        if isinstance(self._runtime, Profiler):
            self._runtime.stop()
        elif self._running is not None:
            self._running.stop()
            Path(folder).mkdir(parents=True, exist_ok=True)
            self._running.export_chrome_trace(str(Path(folder) / f"rank{self._rank}.trace.json"))
            self._running = None
