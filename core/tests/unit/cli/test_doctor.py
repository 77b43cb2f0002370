from __future__ import annotations

import json
from pathlib import Path

import pytest

from dougong.cli import doctor
from dougong.cli.doctor import Report, examine
from dougong.cli.doctor_view import print_report
from dougong.cli.self_test import SelfTestResult, SelfTests
from dougong.errors import DougongError
from dougong.platforms import open_platform
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import Stub


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    return Installed(tmp_path, monkeypatch)


def _examine(platform: str | None = None, devices: str | None = None) -> Report:
    return examine(platform, devices, is_testing=False)


def test_a_sound_machine_ends_with_0_and_names_the_choice(installed: Installed) -> None:
    installed.add(Stub())
    report = _examine()
    assert report.code == 0
    assert report.problems == ()
    data = json.loads(json.dumps(report.to_json()))
    assert data["selection"]["platform"] == "fake"
    assert data["selection"]["devices"] == [0]
    assert {row["name"]: row["verdict"] for row in data["plugins"]} == {
        "cpu": "available",
        "fake": "chosen",
    }
    assert set(data["versions"]) == {"dougong", "contract", "python", "torch"}


def test_a_broken_plugin_ends_with_3_even_when_another_is_chosen(installed: Installed) -> None:
    installed.add(Stub())
    installed.add(Stub(distribution="bad", name="bad", plugin_head="1 / 0"))
    report = _examine("fake")
    assert report.code == 3
    assert report.selection is not None
    assert report.selection.platform == "fake"
    (problem,) = report.problems
    assert "bad 0.1" in problem
    assert "ZeroDivisionError" in problem


def test_a_plugin_that_fails_when_loaded_is_told_once_and_marked(installed: Installed) -> None:
    installed.add(Stub(hooks="raise ImportError('fakert')"))
    report = _examine()
    assert report.code == 3
    assert report.selection is None
    assert len(report.problems) == 1
    (row,) = report.table.named("fake")
    assert row.verdict == "broken"
    assert "fakert" in row.reason


def test_an_impossible_choice_ends_with_2(installed: Installed) -> None:
    installed.add(Stub())
    installed.add(Stub(distribution="other", name="other"))
    report = _examine()
    assert report.code == 2
    assert "--platform fake or --platform other" in report.problems[0]
    assert _examine("fake", "7").code == 2


@pytest.mark.parametrize(
    ("variable", "value"),
    [("DOUGONG_PLUGINS", "nobody"), ("DOUGONG_PLUGINS", "a,,b"), ("DOUGONG_PLATFORM", "a/b")],
)
def test_a_senseless_setting_is_a_problem_and_the_table_still_comes(
    installed: Installed, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    installed.add(Stub())
    monkeypatch.setenv(variable, value)
    report = _examine()
    assert report.code == 2
    assert variable in report.problems[0]
    assert len(report.table.rows) == 2


def test_the_certificate_of_the_choice_is_told_or_that_there_is_none(
    installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed.add(Stub())
    told = _examine().to_json()["conformance"]
    assert told["sentence"] == "fake 0.1: no certificate"
    assert "in the wheel fakeplat 0.1; *.json in DOUGONG_CERTIFICATES" in told["details"]
    monkeypatch.setenv("DOUGONG_CERTIFICATES", str(tmp_path / "gone"))
    report = _examine()
    assert (report.code, report.conformance) == (2, None)
    assert "DOUGONG_CERTIFICATES" in report.problems[0]


def test_a_failed_test_ends_with_1(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    installed.add(Stub())
    failed = SelfTestResult(0, "an op", False, "wrong by a mile")
    monkeypatch.setattr(doctor, "run_self_tests", lambda loaded: SelfTests((failed,)))
    report = examine(None, None, is_testing=True)
    assert report.code == 1
    assert report.problems == ("device 0: an op failed: wrong by a mile",)


def test_what_is_printed_has_every_row_device_test_and_problem(
    installed: Installed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed.add(Stub())
    installed.add(
        Stub(distribution="far", name="far", probe='return NotHere("no [red] /dev/far0")')
    )
    passed = SelfTestResult(0, "an op", True, "relative error 0")
    kernels = SelfTests((passed,), ("acme-kernels 2.1",), {"acme-extra": "no [bold] compiler"})
    monkeypatch.setattr(doctor, "run_self_tests", lambda loaded: kernels)
    print_report(examine(None, None, is_testing=True).to_json())
    text = capsys.readouterr().out
    for part in ("chosen", "not_here", "no [red] /dev/far0", "Fake 1", "8.0 GiB", "passed"):
        assert part in text
    for part in ("acme-kernels 2.1", "loaded", "acme-extra", "missing", "no [bold] compiler"):
        assert part in text
    assert "platform fake: the only one that is available" in text
    assert "fake 0.1: no certificate; looked in" in text


def test_kernel_libraries_stand_in_the_report_once_they_were_asked_for(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed.add(Stub())
    found = SelfTests((), ("acme-kernels 2.1",), {"acme-extra": "no compiler"})
    monkeypatch.setattr(doctor, "run_self_tests", lambda loaded: found)
    assert examine(None, None, is_testing=True).to_json()["kernels"] == {
        "loaded": ["acme-kernels 2.1"],
        "missing": {"acme-extra": "no compiler"},
    }
    assert _examine().to_json()["kernels"] is None


@pytest.mark.parametrize(
    ("mask", "code", "told"),
    [
        ("0,0", 2, "names a device twice"),
        ("0,1", 2, "names 2 devices and fakeplat 0.1 finds 1"),
        ("", 3, "its probe found 1 devices"),
    ],
)
def test_a_mask_that_a_start_refuses_is_a_problem(
    installed: Installed, monkeypatch: pytest.MonkeyPatch, mask: str, code: int, told: str
) -> None:
    monkeypatch.setenv("FAKE_VISIBLE_DEVICES", mask)
    installed.add(Stub())
    report = _examine("fake")
    assert report.code == code
    assert report.selection is None
    assert told in report.problems[0]
    with pytest.raises(DougongError, match=told):
        open_platform("fake")


def test_two_plugins_with_one_reason_are_two_problems(
    installed: Installed, caplog: pytest.LogCaptureFixture
) -> None:
    installed.add(Stub())
    for name in ("bad", "worse"):
        installed.add(Stub(distribution=name, name=name, plugin_head="1 / 0"))
    named, automatic = _examine("fake"), _examine()
    assert [problem.partition(" ")[0] for problem in named.problems] == ["bad", "worse"]
    assert len(automatic.problems) == 1, "the refusal names both"
    assert len(_examine("bad").problems) == 2
    assert "not used" not in caplog.text, "the report tells of them"
