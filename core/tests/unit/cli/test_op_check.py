from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dougong.cli.op_check import CHECKED_OPS, OpCheck, check_op, relative_error
from dougong.contracts import KernelReport
from dougong.cpu.platform import CpuPlatform
from dougong.platforms import load_platform, select_platform
from dougong.platforms.discovery import discover
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import PLATFORM, Stub

CPU = torch.device("cpu")
NOTHING = KernelReport()
HOOKS = """
import torch
from dougong.ops import Needs, register_kernel

@register_kernel("linear", name="fake/linear", when=Needs(library="fake-kernels"))
def linear(x, weight, bias): return torch.nn.functional.linear(x, weight, bias) + {error}

@register_kernel("rms_norm", name="fake/rms_norm", when=Needs(library="absent"))
def rms_norm(x, weight, eps): raise AssertionError
"""
OVERRIDE = """
from dougong.ops import CustomOp, RMSNorm

@CustomOp.register_oot("rms_norm", name="fake/norm_class")
class Norm(RMSNorm):
    def forward_oot(self, x): return self.forward_native(x)
"""
LOADED = KernelReport(loaded=("fake-kernels 1.0",), missing={"absent": "not on this machine"})


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    return Installed(tmp_path, monkeypatch)


def _check(installed: Installed, key: str, error: float = 0.0) -> OpCheck:
    installed.add(Stub(platform_body=PLATFORM, hooks=HOOKS.format(error=error)))
    return check_op(load_platform(select_platform(installed.table())), 0, LOADED, CPU, key)


def test_the_registered_kernel_is_the_one_that_runs(installed: Installed) -> None:
    check = _check(installed, "linear")
    assert check.detail == "by fake/linear in float32"
    assert check.error < 1e-5


def test_a_kernel_that_computes_something_else_is_found(installed: Installed) -> None:
    assert _check(installed, "linear", error=1.0).error > 0.02


def test_a_kernel_that_is_passed_over_is_named_with_its_reason(installed: Installed) -> None:
    check = _check(installed, "rms_norm")
    assert check.detail.startswith("by native in float32; ")
    assert "passed over: fake/rms_norm: needs absent: not on this machine" in check.detail
    assert check.error < 1e-5


def test_a_class_in_the_ops_place_is_what_runs(installed: Installed) -> None:
    installed.add(Stub(platform_body=PLATFORM, hooks=OVERRIDE))
    loaded = load_platform(select_platform(installed.table()))
    check = check_op(loaded, 0, LOADED, CPU, "rms_norm")
    assert check.detail == "by fake/norm_class in float32"
    assert check.error < 1e-5


@pytest.mark.parametrize("key", CHECKED_OPS)
def test_the_cores_own_kernels_are_right(key: str) -> None:
    loaded = load_platform(select_platform(discover(allowed=()), "cpu"))
    check = check_op(loaded, 0, CpuPlatform().import_kernels(), CPU, key)
    assert check.error < 0.02
    assert check.detail.startswith("by cpu/")


def test_an_error_that_is_no_number_is_infinite() -> None:
    found, expected = torch.tensor([1.0, float("nan")]), torch.ones(2, dtype=torch.float64)
    assert relative_error(found, expected) == float("inf")
