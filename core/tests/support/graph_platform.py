"""A platform of the host that captures steps: `RecordedGraphRunner` and `CapturableBackend`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import pytest

from dougong.contracts import (
    Available,
    Claims,
    ConfigChange,
    ConfigView,
    DeviceFacts,
    DeviceInfo,
    KernelReport,
    MemoryInfo,
    PlatformPlugin,
)
from dougong.cpu.platform import CpuPlatform
from dougong.cpu.runtime import CpuDeviceRuntime
from tests.support import recorded_graphs
from tests.support.recorded_graphs import Journal

NAME = "graphs"
MEMORY_BYTES = 1 << 30


class GraphRuntime(CpuDeviceRuntime):
    """The host's, with memory that nobody else uses."""

    def memory_info(self, device_index: int) -> MemoryInfo:
        return MemoryInfo(MEMORY_BYTES, MEMORY_BYTES)

    def peak_memory_bytes(self) -> int:
        return 0


class GraphPlatform(CpuPlatform):
    """Attention that can be captured, then plain torch, which cannot."""

    name = NAME

    def claims(self, arch: str) -> Claims:
        return Claims(
            arch=arch,
            dtypes=("float32",),
            kv_dtypes=("float32",),
            kv_block_sizes=(16, 4),
            graph_capture=True,
        )

    def facts(self, device_index: int) -> DeviceFacts:
        return replace(
            super().facts(device_index),
            memory_total_bytes=MEMORY_BYTES,
            memory_free_bytes=MEMORY_BYTES,
            memory_quota_bytes=None,
        )

    @cached_property
    def runtime(self) -> GraphRuntime:
        return GraphRuntime()

    def import_kernels(self) -> KernelReport:
        return KernelReport()

    def check_and_update_config(self, config: ConfigView) -> Sequence[ConfigChange]:
        return ()

    def get_attn_backends(self) -> dict[str, str]:
        return {
            "graphs/attention": "tests.support.capturable_attention:CapturableBackend",
            "reference/torch": "dougong.reference:ReferenceAttentionBackend",
        }

    def get_worker_cls(self) -> str:
        return "dougong.reference:ReferenceWorker"

    def get_graph_runner_cls(self) -> str:
        return "tests.support.recorded_graphs:RecordedGraphRunner"


def probe() -> Available:
    """One device."""
    one = DeviceInfo(index=0, name="Recorder", arch="graphs1", memory_bytes=MEMORY_BYTES)
    return Available((one,))


plugin = PlatformPlugin(
    name=NAME,
    requires_contract=">=1.0,<2",
    probe=probe,
    platform="tests.support.graph_platform:GraphPlatform",
    auto_select=False,
)


def install_graph_platform(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let discovery find the platform, and no other that may be installed here."""
    monkeypatch.setenv("DOUGONG_PLUGINS", NAME)
    info = folder / "dougong_graphs-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: dougong-graphs\nVersion: 1.0\nRequires-Dist: dougong>=0.1\n"
    )
    entry = f"{NAME} = tests.support.graph_platform:plugin"
    (info / "entry_points.txt").write_text(f"[dougong.platform_plugins]\n{entry}\n")
    monkeypatch.syspath_prepend(str(folder))


def new_journal(monkeypatch: pytest.MonkeyPatch) -> Journal:
    """What runners write from now on."""
    journal = Journal()
    monkeypatch.setattr(recorded_graphs, "journal", journal)
    return journal
