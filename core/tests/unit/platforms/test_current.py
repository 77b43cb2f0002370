from __future__ import annotations

import threading

import pytest

import dougong
from dougong.contracts import Platform
from dougong.errors import PluginError
from dougong.platforms import current
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import Stub


@pytest.fixture(autouse=True)
def _nothing_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(current, "_resolved", [])


def test_a_script_gets_one_platform_however_many_threads_ask(installed: Installed) -> None:
    installed.add(Stub())
    found: list[Platform] = []
    threads = [
        threading.Thread(target=lambda: found.append(dougong.current_platform)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [platform.name for platform in found] == ["fake"] * 4
    assert len({id(platform) for platform in found}) == 1


def test_a_failure_is_not_remembered(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    installed.add(Stub(plugin_head="1 / 0"))
    with pytest.raises(PluginError):
        current.current_platform()
    monkeypatch.setenv("DOUGONG_PLUGINS", "other")
    installed.add(Stub(distribution="other", name="other"))
    assert current.current_platform().name == "other"
