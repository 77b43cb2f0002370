from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dougong.errors import ConfigError, PluginError
from dougong.platforms import open_platform
from dougong.platforms.table import Verdict
from tests.support.installed_stubs import Installed
from tests.support.processes import is_running
from tests.support.stub_plugins import Stub


def test_the_environment_chooses_and_the_option_wins_over_it(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed.add(Stub())
    installed.add(Stub(distribution="other", name="other"))
    monkeypatch.setenv("DOUGONG_PLATFORM", "other")
    assert open_platform().selection.platform == "other"
    assert open_platform("fake").selection.platform == "fake"


def test_the_allow_list_of_the_environment_is_obeyed(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed.add(Stub())
    installed.add(Stub(distribution="other", name="other", plugin_head="1 / 0"))
    with pytest.raises(PluginError, match="ZeroDivisionError"):
        open_platform()
    monkeypatch.setenv("DOUGONG_PLUGINS", "fake")
    assert open_platform().selection.platform == "fake"
    monkeypatch.setenv("DOUGONG_PLUGINS", "fake,nobody")
    with pytest.raises(ConfigError, match=r"'nobody'.*Discovered: cpu, fake, other"):
        open_platform()


def test_the_table_tells_of_a_rival_that_would_fail(installed: Installed) -> None:
    installed.add(Stub())
    installed.add(Stub(distribution="other", name="other", hooks='raise ImportError("otherrt")'))
    loaded = open_platform("fake")
    (rival,) = loaded.table.named("other")
    assert rival.verdict is Verdict.BROKEN
    assert "otherrt" in rival.reason


HANGS = """
import os, pathlib, time
pathlib.Path({path!r}).write_text(str(os.getpid()))
time.sleep(600)
"""


def test_a_rival_that_hangs_holds_up_the_table_for_a_moment_only(installed: Installed) -> None:
    installed.add(Stub())
    installed.add(Stub(distribution="other", name="other", hooks="import time; time.sleep(600)"))
    loaded = open_platform("fake", examination_s=0.5)
    (rival,) = loaded.table.named("other")
    assert rival.verdict is Verdict.AVAILABLE
    assert rival.reason.startswith("not tried in time")


ENDS = """
import pathlib, sys, time
from dougong.platforms import open_platform
open_platform("fake", examination_s=600.0)
written = pathlib.Path(sys.argv[1])
while not (written.exists() and written.read_text()):
    time.sleep(0.01)
"""


def test_a_program_ends_at_once_while_a_rival_hangs_and_takes_it_along(
    installed: Installed, tmp_path: Path
) -> None:
    written = tmp_path / "pid"
    installed.add(Stub())
    hooks = HANGS.format(path=str(written))
    installed.add(Stub(distribution="other", name="other", hooks=hooks))
    done = subprocess.run([sys.executable, "-c", ENDS, str(written)], timeout=60, check=False)
    assert done.returncode == 0
    assert not is_running(int(written.read_text()))


def test_the_choice_is_said_aloud_once(
    installed: Installed, caplog: pytest.LogCaptureFixture
) -> None:
    installed.add(Stub())
    with caplog.at_level("INFO", "dougong"):
        open_platform()
    assert caplog.text.count("platform fake: the only one that is available") == 1


MASKED = """
import os
mask = os.environ.get("FAKE_VISIBLE_DEVICES")
ids = range(8) if mask is None else [int(i) for i in mask.split(",") if i and int(i) < 8]
if not ids:
    return NotHere("no device is visible")
return Available(tuple(DeviceInfo(index=n, name="Fake 1") for n, _ in enumerate(ids)))
"""


@pytest.mark.parametrize(
    ("mask", "told"),
    [
        ("4,4", "'4,4' names a device twice"),
        ("4,9", "FAKE_VISIBLE_DEVICES=4,9 names 2 devices and fakeplat 0.1 finds 1"),
        ("9", "no device is visible"),
        ("", "no device is visible"),
    ],
)
def test_a_mask_that_makes_no_sense_is_refused_at_once(
    installed: Installed, monkeypatch: pytest.MonkeyPatch, mask: str, told: str
) -> None:
    monkeypatch.setenv("FAKE_VISIBLE_DEVICES", mask)
    installed.add(Stub(version="0.1", probe=MASKED))
    with pytest.raises(ConfigError, match=told):
        open_platform("fake")


def test_a_mask_that_does_not_start_at_zero_is_reported_in_the_hosts_ids(
    installed: Installed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FAKE_VISIBLE_DEVICES", "6,4")
    installed.add(Stub(probe=MASKED))
    with caplog.at_level("INFO", "dougong"):
        loaded = open_platform("fake")
    assert loaded.selection.device_indices == (0, 1)
    assert "devices 0,1 are 6,4 of this machine" in caplog.text
