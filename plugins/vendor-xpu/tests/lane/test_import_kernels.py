"""The plugin's own way to the library, with the real one."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from dougong_xpu.platform import XpuPlatform
from dougong_xpu.providers import KERNELS
from tests.shown import shows

pytestmark = pytest.mark.lane


def test_the_plugin_loads_the_real_library(kernels: Path) -> None:
    what = "the plugin's import_kernels() loads the real vllm-xpu-kernels"
    with shows("beside", what, "xpu"):
        report = XpuPlatform().import_kernels()
        assert f"{KERNELS} {version(KERNELS)}" in report.loaded
        assert KERNELS not in report.missing
