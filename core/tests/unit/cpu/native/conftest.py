from __future__ import annotations

import pytest
import torch

from dougong.cpu.features import detect_features
from dougong.cpu.native import NativeLibrary, NotBuilt, load_native_library
from dougong.cpu.native.levels import usable_levels

LEVELS = [level.name for level in usable_levels(detect_features())]


@pytest.fixture(scope="session", params=LEVELS)
def library(request: pytest.FixtureRequest) -> NativeLibrary:
    """Every level this machine can run, two threads: a weaker machine's code is tested here too."""
    loaded = load_native_library(level=request.param, num_threads=2)
    if isinstance(loaded, NotBuilt):
        pytest.fail(loaded.reason)
    return loaded


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(20)
