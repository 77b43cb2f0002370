"""Which plugins count as not here, where ``cpu`` was taken for want of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dougong.engine.plan_target import target_here
from dougong.platforms import open_platform
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import Stub

AWAY = 'return NotHere("no device answers")'


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    return Installed(tmp_path / "stubs", monkeypatch)


def test_only_those_count_that_would_have_been_taken(installed: Installed) -> None:
    installed.add(Stub(distribution="away", name="away", probe=AWAY))
    installed.add(Stub(distribution="named", name="named", probe=AWAY, auto_select=False))
    assert target_here(open_platform(None, None)).not_here == {"away": "no device answers"}


def test_where_cpu_was_asked_for_none_counts(installed: Installed) -> None:
    installed.add(Stub(distribution="away", name="away", probe=AWAY))
    assert target_here(open_platform("cpu", None)).not_here == {}
