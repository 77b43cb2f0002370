"""What holds where triton is not installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from dougong_triton_kernels import availability
from dougong_triton_kernels.activation import silu_and_mul
from dougong_triton_kernels.availability import TritonMissingError, missing_triton
from dougong_triton_kernels.launching import kernel


@pytest.fixture
def no_triton(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody finds it here, installed or not."""
    monkeypatch.setattr(availability, "find_spec", lambda name: None)
    missing_triton.cache_clear()
    kernel.cache_clear()
    yield
    missing_triton.cache_clear()
    kernel.cache_clear()


def test_the_package_imports_neither_torch_nor_triton() -> None:
    code = (
        "import sys, dougong_triton_kernels, dougong_triton_kernels.availability\n"
        "dougong_triton_kernels.availability.missing_triton()\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'triton')))\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.usefixtures("no_triton")
def test_a_call_says_what_to_install() -> None:
    with pytest.raises(TritonMissingError, match="Install triton"):
        silu_and_mul(torch.ones(1, 4))


@pytest.mark.usefixtures("no_triton")
def test_arguments_are_checked_before_triton_is_asked_for() -> None:
    with pytest.raises(ValueError, match="halves"):
        silu_and_mul(torch.ones(1, 3))


@pytest.mark.usefixtures("no_triton")
def test_whether_it_is_missing_can_be_asked() -> None:
    reason = missing_triton()
    assert reason is not None
    assert "not installed" in reason
