from __future__ import annotations

import pytest

from dougong.contracts import KernelReport
from dougong.errors import DeviceError, PluginError
from dougong.platforms.kernels import read_kernels
from dougong.platforms.loading import LoadedPlatform, load_platform
from dougong.platforms.probing import PROCESS_PROBES
from dougong.platforms.selection import select_platform
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import PLATFORM, Stub

NULL_RUNTIME = "dougong.testing.null_platform import NullRuntime as StubRuntime"
REPORT = """
    def import_kernels(self):
        import os
        from dougong.contracts import DeviceLost, KernelReport
        return KernelReport(loaded=(f"fake-kernels {{os.getpid()}}",), missing={{"extra": "no"}})
"""
FAILING = REPORT.replace("return KernelReport", "raise DeviceLost('gone')\n        KernelReport")
RAISING = REPORT.replace("return KernelReport", "1 / 0\n        KernelReport")
SILENT = REPORT.replace("return KernelReport", "KernelReport")


def _loaded(installed: Installed, method: str, *, opens_context: bool = False) -> LoadedPlatform:
    # A runtime that imports no torch, so that a child is quick.
    body = PLATFORM.replace("{package}.runtime import StubRuntime", NULL_RUNTIME) + method
    if opens_context:
        body = body.replace("return False", "return True")
    installed.add(Stub(platform_body=body))
    return load_platform(select_platform(installed.table(probes=PROCESS_PROBES), "fake"))


def test_kernels_are_loaded_here_where_that_opens_nothing(installed: Installed) -> None:
    loaded = _loaded(installed, REPORT)
    report = read_kernels(loaded, 0)
    assert report == loaded.platform.import_kernels()
    assert report.missing == {"extra": "no"}


def test_and_in_a_child_where_it_opens_a_context(installed: Installed) -> None:
    loaded = _loaded(installed, REPORT, opens_context=True)
    report = read_kernels(loaded, 0)
    assert isinstance(report, KernelReport)
    assert report.missing == {"extra": "no"}
    assert report.loaded != loaded.platform.import_kernels().loaded


@pytest.mark.parametrize("opens_context", [False, True])
@pytest.mark.parametrize(
    ("method", "kind", "told"),
    [
        (FAILING, DeviceError, "gone"),
        (RAISING, PluginError, "fakeplat 0.1: loading kernels on device 0 raised ZeroDivision"),
        (SILENT, PluginError, "answered None, not a KernelReport"),
    ],
)
def test_whose_fault_it_is_does_not_depend_on_the_process(
    installed: Installed, method: str, kind: type[Exception], told: str, opens_context: bool
) -> None:
    with pytest.raises(kind, match=told):
        read_kernels(_loaded(installed, method, opens_context=opens_context), 0)


@pytest.mark.parametrize("opens_context", [False, True])
@pytest.mark.parametrize(
    ("report", "told"),
    [
        ('loaded=("a 1", "")', "loaded has '' in it"),
        ('loaded=(" a", 3)', "loaded has ' a', 3 in it"),
        ('loaded="fake-kernels"', "loaded is 'fake-kernels', not a tuple"),
        ('missing={{"": "why"}}', "missing has '' in it"),
        ('missing={{"extra": ""}}', "missing has '' for the reason of extra"),
        ('missing=["extra"]', r"missing is \['extra'\], not a mapping"),
    ],
)
def test_a_report_that_names_nothing_is_the_plugins_fault(
    installed: Installed, report: str, told: str, opens_context: bool
) -> None:
    method = REPORT.split("return")[0] + f"return KernelReport({report})\n"
    with pytest.raises(PluginError, match=told):
        read_kernels(_loaded(installed, method, opens_context=opens_context), 0)


def test_a_child_that_dies_is_the_plugins_fault(installed: Installed) -> None:
    dying = REPORT.replace("return KernelReport", "os._exit(3)\n        KernelReport")
    with pytest.raises(PluginError, match="ended its process with code 3"):
        read_kernels(_loaded(installed, dying, opens_context=True), 0)
