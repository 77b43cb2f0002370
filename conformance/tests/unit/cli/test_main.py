"""The command line: what it refuses, what it writes, and that its last line says why it ended."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from dougong_conformance.cli import choice
from dougong_conformance.cli.main import COMMANDS, main
from dougong_conformance.cli.run import parse_seconds
from dougong_conformance.outcomes import Outcome
from dougong_conformance.requirements import all_requirements
from dougong_conformance.results import write_record
from dougong_conformance.runner.waivers import parse_waivers, read_waivers
from dougong_conformance.runner.wheels import installed_plugins
from tests.tamper.toys import write_plugin
from tests.unit.test_results import RECORD, RESULT


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.rstrip().splitlines()[-1]


def test_help_imports_neither_torch_nor_a_plugin() -> None:
    code = (
        "import sys\n"
        "from dougong_conformance.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "import dougong_conformance.runner.supervisor, dougong_conformance.runner.run\n"
        "import dougong_conformance.cli.running\n"
        "print([one for one in ('torch', 'numpy', 'dougong', 'dougong_sim') if one in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.rstrip().endswith("[]")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(name, "--help") == 0
    assert "Usage" in capsys.readouterr().out


def test_certify_takes_no_other_options(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--profile=ops", "-k=rope", "--json", "--search=1m", "--stage=ops"):
        assert run("certify", option) == 2
        assert last_line(capsys).startswith("dougong-conform: exit 2: ")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("run", "--profile", "speed"), "no profile is named 'speed'"),
        (("run", "--search", "soon"), "is no time"),
        (("run", "--plugin", "cpu", "-k", "and"), "cannot be understood"),
        (("smoke", "--stage", "moon"), "no step is named 'moon'"),
        (("repro", "/nowhere", "ops.x"), "exit 2: /nowhere"),
        (("compare", "/nowhere", "/nowhere"), "exit 2: /nowhere"),
        (("waivers", "suggest", "/nowhere"), "/nowhere"),
        (("init", "/nowhere"), "no folder"),
    ],
)
def test_usage_errors_say_what_is_wrong_in_their_last_line(
    arguments: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    told = last_line(capsys)
    assert told.startswith("dougong-conform: exit 2: ")
    assert reason in told


def test_times_are_read() -> None:
    assert [parse_seconds(one) for one in ("", "90", "90s", "1.5m", "1h")] == [0, 90, 90, 90, 3600]


@pytest.mark.parametrize(
    ("ci", "file"),
    [
        ("github", ".github/workflows/conformance.yml"),
        ("gitlab", ".gitlab/conformance.yml"),
        ("buildkite", ".buildkite/conformance.yml"),
    ],
)
def test_init_writes_what_the_ci_system_reads(tmp_path: Path, ci: str, file: str) -> None:
    assert run("init", "--plugin", "acme", "--ci", ci, str(tmp_path)) == 0
    text = (tmp_path / file).read_text()
    assert "dougong-conform certify --plugin acme --waivers conformance/waivers.toml" in text
    assert "@" not in text.replace("@v", "")
    assert read_waivers(tmp_path / "conformance" / "waivers.toml").waivers == ()
    assert "acme" in (tmp_path / "conformance" / "README.md").read_text()


def test_commands_in_texts_for_vendors_name_requirements_that_exist(tmp_path: Path) -> None:
    assert run("init", str(tmp_path)) == 0
    for text in (tmp_path / "conformance" / "README.md", Path(__file__).parents[3] / "README.md"):
        told = re.findall(r"(?:explain |repro out ')([a-z_.]+)", text.read_text("utf-8"))
        assert told
        assert set(told) <= all_requirements().keys()


def test_init_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "conformance").mkdir()
    (tmp_path / "conformance" / "README.md").write_text("mine")
    assert run("init", "--json", str(tmp_path)) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["kept"] == [str(tmp_path / "conformance" / "README.md")]
    assert (tmp_path / "conformance" / "README.md").read_text() == "mine"


def test_suggested_waivers_name_what_is_left_to_fill(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = replace(RESULT, outcome=Outcome.FAIL, reason="error 12.5 (of 3.0) isn't small")
    passed = replace(RESULT, id="ops.y", outcome=Outcome.PASS)
    write_record(replace(RECORD, results=(failed, passed)), tmp_path)
    assert run("waivers", "suggest", str(tmp_path)) == 0
    file = tmp_path / "waivers.toml"
    text = capsys.readouterr().out
    file.write_text(text)
    (found,) = read_waivers(file).waivers
    assert set(found.problems) == {
        "field 'reason' is missing",
        "field 'issue' is missing",
        "field 'approved_by' is missing",
        "issue is no URL",
    }
    assert found.match == r"error \d+\.\d+ \(of \d+\.\d+\) isn't small"
    assert run("waivers", "check", str(file)) == 6
    filled = {"reason": "r", "issue": "https://x", "approved_by": "n"}
    row = {name: value for name, value in _table(text).items() if name not in filled}
    assert parse_waivers([{**row, **filled}])[0].problems == ()


def _table(text: str) -> dict[str, object]:
    import tomllib

    return dict(tomllib.loads(text)["waiver"][0])


def test_a_run_without_failures_needs_no_waiver(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_record(RECORD, tmp_path)
    assert run("waivers", "suggest", str(tmp_path)) == 0
    assert "nothing failed" in capsys.readouterr().out


@pytest.fixture
def no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core is not asked: that would start a process."""
    rows = [
        {
            "name": "toy",
            "distribution": "dougong-toy",
            "version": "1.0",
            "verdict": "refused",
            "reason": "contract 9",
            "is_extension": False,
        }
    ]
    monkeypatch.setattr(choice, "plugin_table", lambda: rows)


@pytest.mark.usefixtures("no_table")
def test_the_only_plugin_need_not_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    toy = write_plugin(tmp_path)
    cpu = next(one for one in installed_plugins() if one.name == "cpu")
    monkeypatch.setattr(choice, "installed_plugins", lambda path="": [cpu, toy])
    assert choice.choose_plugin(None).name == "toy"
    assert choice.choose_plugin("cpu").name == "cpu"
    with pytest.raises(Exception, match="2"):
        choice.choose_plugin("tot")
    assert "toy (dougong-toy 1.0): refused: contract 9" in last_line(capsys)


@pytest.mark.usefixtures("no_table")
def test_of_several_plugins_one_must_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    toy = write_plugin(tmp_path)
    monkeypatch.setattr(choice, "installed_plugins", lambda path="": [toy, replace(toy, name="b")])
    with pytest.raises(Exception, match="2"):
        choice.choose_plugin(None)
    assert "several plugins are installed: toy" in last_line(capsys)


@pytest.mark.usefixtures("no_table")
def test_two_wheels_of_one_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    toy = write_plugin(tmp_path)
    monkeypatch.setattr(choice, "installed_plugins", lambda path="": [toy, toy])
    with pytest.raises(Exception, match="2"):
        choice.choose_plugin("toy")
    assert "uninstall one" in last_line(capsys)


@pytest.mark.usefixtures("no_table")
def test_a_wheel_that_only_looks_like_a_plugin_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    info = tmp_path / "dougong_fake-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dougong-fake\nVersion: 2.0\n")
    found = [*metadata.distributions(path=[str(tmp_path)])]
    monkeypatch.setattr("importlib.metadata.distributions", lambda: found)
    monkeypatch.setattr(choice, "installed_plugins", lambda path="": [])
    with pytest.raises(Exception, match="2"):
        choice.choose_plugin(None)
    assert "dougong-fake 2.0: it has no entry point" in last_line(capsys)


def test_the_module_runs_as_the_command_does() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "dougong_conformance", "--version"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ},
    )
    assert "specification 1.0" in ended.stdout
