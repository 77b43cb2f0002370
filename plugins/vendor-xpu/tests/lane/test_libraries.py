"""The vendor's libraries load, and what stands in for PyTorch's XPU build is no more than that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.shown import shows
from tools.elf import read_library
from tools.prepare_xpu import STUBS, undefined_symbols, write_stubs

pytestmark = pytest.mark.lane

_STOOD_IN_FOR = 12
"""Symbols of PyTorch's XPU build; `no_xpu.c` has them."""


def test_nothing_is_undefined_but_what_the_stub_gives(kernels: Path, tmp_path: Path) -> None:
    what = "vllm-xpu-kernels' real libraries load beside CPU torch; 12 symbols are stood in for"
    with shows("beside", what, "xpu") as said:
        assert undefined_symbols(kernels) == {}
        missing = undefined_symbols(kernels, frozenset(STUBS))
        said.details["symbols"] = sorted(missing)
        assert len(missing) == _STOOD_IN_FOR
        write_stubs(tmp_path)
        defined = {name for stub in STUBS for name in read_library(tmp_path / stub).defined}
        assert missing.keys() == defined


def test_a_stub_that_is_not_there_is_found(kernels: Path) -> None:
    found = undefined_symbols(kernels, frozenset({"libtorch_xpu.so"}))
    assert found == {"_ZN2at3xpu19getDevicePropertiesEa": ("_xpu_C.abi3.so",)}


def test_what_needs_a_device_ends_the_process_and_says_so(kernels: Path) -> None:
    code = "import torch, vllm_xpu_kernels._C\nprint(torch.ops._C_cache_ops.getMemoryInfo(0))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode < 0
    assert "there is no XPU here" in done.stderr
