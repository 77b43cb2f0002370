from __future__ import annotations

from pathlib import Path

import pytest

from dougong.cli import bandwidth_check
from dougong.errors import PluginError
from dougong.platforms import LoadedPlatform, open_platform
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import PLATFORM, Stub


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    return Installed(tmp_path, monkeypatch)


def stub(installed: Installed, *, runtime: str = "{package}.runtime") -> LoadedPlatform:
    installed.add(Stub(platform_body=PLATFORM.replace("{package}.runtime", runtime)))
    return open_platform("fake")


def test_a_child_gives_a_rate() -> None:
    assert bandwidth_check.ask_bandwidth(open_platform("cpu"), 0) > 1e6


def test_a_runtime_that_cannot_be_made_is_the_plugins_fault(installed: Installed) -> None:
    loaded = stub(installed, runtime="{package}.nowhere")
    with pytest.raises(
        PluginError, match=r"fakeplat 0\.1: the runtime of platform fake cannot be made"
    ):
        bandwidth_check.ask_bandwidth(loaded, 0)
