"""The vendor's libraries, loaded once."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tools.prepare_xpu import kernels_folder

LIBRARIES = ("_C", "_moe_C", "_vllm_fa2_C", "_xpu_C")


@pytest.fixture(scope="session")
def kernels() -> Path:
    """Where they lie; they are loaded, so their schemas are in torch's dispatcher."""
    import torch  # noqa: F401 - its libraries are looked for in this process

    for name in LIBRARIES:
        importlib.import_module(f"vllm_xpu_kernels.{name}")
    return kernels_folder()
