from __future__ import annotations

import pytest

from dougong.errors import DeviceError, PluginError
from dougong.platforms.facts import read_capabilities
from dougong.platforms.loading import LoadedPlatform, load_platform
from dougong.platforms.probing import PROCESS_PROBES
from dougong.platforms.selection import select_platform
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import PLATFORM, Stub

IN_A_CHILD = ("return False", "return True")
FACTS = "        gib = 1 << 30"


def _loaded(installed: Installed, *changes: tuple[str, str]) -> LoadedPlatform:
    body = PLATFORM
    for old, new in changes:
        assert old in body
        body = body.replace(old, new)
    installed.add(Stub(platform_body=body))
    return load_platform(select_platform(installed.table(probes=PROCESS_PROBES), "fake"))


def test_facts_that_open_nothing_are_read_here(installed: Installed) -> None:
    found = read_capabilities(_loaded(installed), 0)
    assert found.facts.memory_total_bytes == 8 << 30
    assert found.claims.arch == "fake1"


def test_facts_that_open_a_context_are_read_in_a_child(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_process = (FACTS, "        import os\n        gib = os.getpid()")
    loaded = _loaded(installed, IN_A_CHILD, by_process)
    here = loaded.platform.facts(0)
    there = read_capabilities(loaded, 0).facts
    assert there.memory_total_bytes % 8 == 0
    assert there.memory_total_bytes != here.memory_total_bytes
    assert there.name == here.name


def test_a_device_that_does_not_answer_is_a_device_error_from_a_child_too(
    installed: Installed,
) -> None:
    silent = (
        FACTS,
        "        from dougong.contracts import DeviceLost\n        raise DeviceLost('gone')",
    )
    with pytest.raises(DeviceError, match="gone"):
        read_capabilities(_loaded(installed, IN_A_CHILD, (FACTS, silent[1])), 0)


@pytest.mark.parametrize("change", [(), (IN_A_CHILD,)])
def test_a_query_that_raises_is_the_plugins_fault(
    installed: Installed, change: tuple[tuple[str, str], ...]
) -> None:
    loaded = _loaded(installed, *change, (FACTS, "        raise OSError('boom')"))
    with pytest.raises(PluginError, match=r"fakeplat 0\.1: facts\(0\).*boom"):
        read_capabilities(loaded, 0)


def test_claims_that_raise_are_the_plugins_fault(installed: Installed) -> None:
    loaded = _loaded(installed, ("        return Claims(", "        1 / 0\n        return Claims("))
    with pytest.raises(PluginError, match=r"claims\('fake1'\) raised ZeroDivisionError"):
        read_capabilities(loaded, 0)
