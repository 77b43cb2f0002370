from __future__ import annotations

from pathlib import Path

import pytest

from dougong.cli import bandwidth_check
from dougong.errors import DeviceError, PluginError
from dougong.platforms import LoadedPlatform, open_platform
from dougong.platforms.short_lived import ChildFailed
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
    with pytest.raises(PluginError, match=r"fakeplat 0\.1: memory bandwidth of device 0 could not"):
        bandwidth_check.ask_bandwidth(loaded, 0)


def test_a_device_that_fails_is_a_device_error(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"device_error": "gone", "failure": ""}
    monkeypatch.setattr(bandwidth_check, "ask_child", lambda *asked: answer)
    with pytest.raises(DeviceError, match="gone"):
        bandwidth_check.ask_bandwidth(stub(installed), 0)


def test_a_child_without_an_answer_is_the_plugins_fault(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(*asked: object) -> None:
        raise ChildFailed("it gave no answer within 120 s", is_timeout=True)

    monkeypatch.setattr(bandwidth_check, "ask_child", hang)
    with pytest.raises(PluginError, match="it gave no answer within 120 s"):
        bandwidth_check.ask_bandwidth(stub(installed), 0)
