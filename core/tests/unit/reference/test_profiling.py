"""Profiles: the vendor's own profiler where there is one."""

from __future__ import annotations

from pathlib import Path

import torch

from dougong.cpu.runtime import CpuDeviceRuntime
from dougong.reference.profiling import RankProfiler


class VendorRuntime(CpuDeviceRuntime):
    """Has a profiler and notes its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def start(self, folder: str) -> None:
        self.told.append(f"start {folder}")

    def stop(self) -> None:
        self.told.append("stop")


def test_the_vendors_profiler_is_used_where_it_has_one(tmp_path: Path) -> None:
    runtime = VendorRuntime()
    profiler = RankProfiler(runtime, rank=0)
    profiler.start("traces")
    profiler.stop("traces")
    assert runtime.told == ["start traces", "stop"]


def test_elsewhere_a_trace_is_written_when_it_stops_and_only_then(tmp_path: Path) -> None:
    profiler = RankProfiler(CpuDeviceRuntime(), rank=3)
    profiler.stop(str(tmp_path / "nothing"))
    profiler.start(str(tmp_path / "new"))
    torch.ones(4).sum()
    profiler.stop(str(tmp_path / "new"))
    assert (tmp_path / "new" / "rank3.trace.json").stat().st_size > 0
    assert not (tmp_path / "nothing").exists()
