from __future__ import annotations

from pathlib import Path

import pytest

from dougong.cli.self_test import COLLECTIVE_TEST, OP_TEST, check_devices, run_self_tests
from dougong.platforms.loading import LoadedPlatform, load_platform
from dougong.platforms.probing import PROCESS_PROBES
from dougong.platforms.selection import select_platform
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import PLATFORM, Stub


def _loaded(installed: Installed, body: str) -> LoadedPlatform:
    installed.add(Stub(platform_body=body))
    return load_platform(select_platform(installed.table(probes=PROCESS_PROBES)))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    return Installed(tmp_path, monkeypatch)


def test_a_sound_device_passes_both_tests(installed: Installed) -> None:
    results = list(check_devices(_loaded(installed, PLATFORM)))
    assert [(r.device_index, r.test, r.has_passed) for r in results] == [
        (0, OP_TEST, True),
        (0, COLLECTIVE_TEST, True),
    ]


def test_a_communicator_that_cannot_be_made_fails_its_test_alone(installed: Installed) -> None:
    method = '    def get_device_communicator_cls(self): return "nobody.imports:This"\n'
    op, collective = check_devices(_loaded(installed, f"{PLATFORM}\n{method}"))
    assert op.has_passed
    assert not collective.has_passed
    assert "nobody.imports:This cannot be imported" in collective.detail


def test_a_device_that_kills_its_process_fails_its_tests_and_nothing_else(
    installed: Installed,
) -> None:
    body = PLATFORM.replace("from {package}.runtime import", "import os; os._exit(11)  #")
    results = run_self_tests(_loaded(installed, body))
    assert [r.has_passed for r in results] == [False, False]
    assert "code 11" in results[0].detail
