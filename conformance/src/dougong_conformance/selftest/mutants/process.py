"""Plugins that end or hang the process they run in."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from dougong_conformance.selftest.mutant import mutant
from dougong_conformance.selftest.reshape import with_kernel
from dougong_conformance.session import PluginUnderTest


@mutant(
    "X01", "a kernel dies of a segmentation fault", killer="ops.rms_norm", ends=("crash",),
    needs_process=True,
)  # fmt: skip
def x01(plugin: PluginUnderTest) -> PluginUnderTest:
    def rms_norm(x: Any, weight: Any, eps: float) -> Any:
        os.kill(os.getpid(), signal.SIGSEGV)

    return with_kernel(plugin, "rms_norm", rms_norm)


@mutant(
    "X02", "a kernel never comes back", killer="ops.rms_norm", ends=("timeout",),
    needs_process=True,
)  # fmt: skip
def x02(plugin: PluginUnderTest) -> PluginUnderTest:
    def rms_norm(x: Any, weight: Any, eps: float) -> Any:
        while True:
            time.sleep(3600)

    return with_kernel(plugin, "rms_norm", rms_norm)


@mutant(
    "X03", "a kernel ends the process with exit code 0", killer="ops.rms_norm", ends=("crash",),
    needs_process=True,
)  # fmt: skip
def x03(plugin: PluginUnderTest) -> PluginUnderTest:
    def rms_norm(x: Any, weight: Any, eps: float) -> Any:
        os._exit(0)

    return with_kernel(plugin, "rms_norm", rms_norm)
