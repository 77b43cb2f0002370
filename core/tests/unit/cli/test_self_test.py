from __future__ import annotations

from pathlib import Path

import pytest

from dougong.cli import self_test
from dougong.cli.self_test import COLLECTIVE_TEST, OP_TESTS, SelfTests, check_ops, run_self_tests
from dougong.platforms.loading import LoadedPlatform, load_platform
from dougong.platforms.probing import PROCESS_PROBES
from dougong.platforms.selection import select_platform
from dougong.platforms.short_lived import ChildFailed
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import PLATFORM, Stub

KERNELS = """
    def import_kernels(self):
        from dougong.contracts import KernelReport
        return KernelReport(loaded=("acme-kernels 2.1",), missing={{"acme-extra": "too old"}})
"""


def _loaded(installed: Installed, body: str = PLATFORM, hooks: str = "") -> LoadedPlatform:
    installed.add(Stub(platform_body=body, hooks=hooks))
    return load_platform(select_platform(installed.table(probes=PROCESS_PROBES)))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    return Installed(tmp_path, monkeypatch)


def _without_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "check_collective", lambda loaded, index: (0.0, "2 ranks"))


def test_a_sound_device_passes_every_test_in_children(installed: Installed) -> None:
    results = run_self_tests(_loaded(installed)).results
    assert [(r.device_index, r.test, r.has_passed) for r in results] == [
        *((0, test, True) for test in OP_TESTS.values()),
        (0, COLLECTIVE_TEST, True),
    ]
    assert "by native in float32" in results[0].detail
    assert "2 ranks on one device" in results[-1].detail


def test_what_import_kernels_found_is_told(installed: Installed) -> None:
    found = check_ops(_loaded(installed, PLATFORM + KERNELS))
    assert found.loaded == ("acme-kernels 2.1",)
    assert found.missing == {"acme-extra": "too old"}


@pytest.mark.parametrize(
    ("answer", "told"),
    [("None", "answered None, not a KernelReport"), ("1 / 0", "ZeroDivisionError")],
)
def test_kernels_that_cannot_be_imported_fail_every_op(
    installed: Installed, answer: str, told: str
) -> None:
    method = f"    def import_kernels(self): return {answer}\n"
    found = check_ops(_loaded(installed, f"{PLATFORM}\n{method}"))
    assert len(found.results) == len(OP_TESTS)
    assert all(not r.has_passed and told in r.detail for r in found.results)


def test_a_runtime_that_does_not_fit_fails_every_op(installed: Installed) -> None:
    body = PLATFORM.replace("self._runtime = StubRuntime()", "self._runtime = object()")
    results = check_ops(_loaded(installed, body)).results
    assert all(not r.has_passed and "does not derive from" in r.detail for r in results)


def test_a_collective_that_fails_leaves_the_ops_alone(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(loaded: LoadedPlatform, index: int) -> tuple[float, str]:
        raise ChildFailed("no peer")

    monkeypatch.setattr(self_test, "check_collective", fail)
    monkeypatch.setattr(self_test, "_ask_ops", lambda loaded: SelfTests())
    (result,) = run_self_tests(_loaded(installed)).results
    assert (result.test, result.has_passed, result.detail) == (COLLECTIVE_TEST, False, "no peer")


def test_a_device_that_kills_its_process_fails_its_tests_and_nothing_else(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_collective(monkeypatch)
    body = PLATFORM.replace("from {package}.runtime import", "import os; os._exit(11)  #")
    results = run_self_tests(_loaded(installed, body)).results
    assert [r.has_passed for r in results] == [False, False, True]
    assert "code 11" in results[0].detail
