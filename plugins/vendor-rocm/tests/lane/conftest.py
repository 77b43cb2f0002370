"""AITER imported for real, its Triton kernels interpreted, on a machine without a GPU.

What is set here must be set before AITER or a kernel is imported: where AITER finds its stand-in
for ROCm, and that ``triton.jit`` makes interpreted functions.
"""

from __future__ import annotations

import gc
import importlib
import os
import warnings
import weakref
from dataclasses import dataclass
from pathlib import Path

import pytest
from dougong_conformance.ladder import golden

from tests.lane import stand_in_rocm

os.environ |= {**stand_in_rocm.environment(), "TRITON_INTERPRET": "1"}


def pytest_sessionstart(session: pytest.Session) -> None:
    """A driver must be active for AITER's modules to import."""
    if session.config.getoption("-m") == "lane":
        from tests.lane import no_gpu

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # it leaves a child of a shell behind
            no_gpu.activate()
            gc.collect()


def pytest_unconfigure() -> None:
    """Torch undoes libraries at exit and stumbles over one of AITER's names: leave them."""
    for finalizer in tuple(weakref.finalize._registry):  # type: ignore[attr-defined]  # private
        pending = finalizer.peek()
        if pending is not None and pending[1].__module__ == "torch.library":
            finalizer.atexit = False


@dataclass(frozen=True, slots=True)
class Imported:
    """AITER, imported.

    Attributes:
        folder: Holds the package.
        schemas: What its import registered; modules that are imported later register more.
    """

    folder: Path
    schemas: dict[str, str]


@pytest.fixture(scope="session")
def aiter() -> Imported:
    """The package."""
    module = importlib.import_module("aiter")
    schemas = golden.registered({"aiter"})
    return Imported(Path(str(module.__file__)).parents[1], schemas)
