"""The descriptor of the CPU platform: always there, and light."""

from __future__ import annotations

import subprocess
import sys

from dougong.contracts import Available
from dougong.cpu.plugin import plugin


def test_there_always_is_one_cpu_with_memory() -> None:
    answer = plugin.probe()
    assert isinstance(answer, Available)
    (device,) = answer.devices
    assert device.index == 0
    assert device.is_integrated
    assert device.memory_bytes > 0
    assert "processors" in device.name


def test_reading_the_descriptor_imports_neither_torch_nor_the_kernels() -> None:
    code = (
        "import sys, dougong.cpu.plugin as p; p.plugin.probe();"
        "sys.exit(bool({'torch', 'dougong.cpu.native', 'dougong.cpu.kernels'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
