from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from dougong import __version__
from dougong.cli import plugin
from dougong.contracts import CONTRACT_VERSION
from dougong.errors import ConfigError
from tests.support.command_line import run_command
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import Stub

LONGEST = "acme-x1-a-long-name0"
NAMES = ["acme", "z", "x1-y2", LONGEST]


def _written(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("projects")
    for name in NAMES:
        plugin.write_project(name, folder)
    return folder


def test_a_project_is_complete(projects: Path) -> None:
    package = "src/dougong_x1_y2"
    assert _written(projects / "dougong-x1-y2") == [
        "README.md",
        "pyproject.toml",
        *(
            f"{package}/{name}.py"
            for name in ("__init__", "hooks", "platform", "plugin", "pretend")
        ),
        f"{package}/py.typed",
        "tests/test_x1_y2.py",
    ]


def test_no_word_of_a_template_is_left(projects: Path) -> None:
    for name in _written(projects):
        assert "$" not in (projects / name).read_text(), name


def test_a_project_asks_for_this_core_and_this_contract(projects: Path) -> None:
    project = tomllib.loads((projects / "dougong-acme" / "pyproject.toml").read_text())["project"]
    (core,) = map(Requirement, project["dependencies"])
    assert core.specifier.contains(__version__)
    assert project["entry-points"]["dougong.platform_plugins"] == {
        "acme": "dougong_acme.plugin:plugin"
    }
    source = (projects / "dougong-acme/src/dougong_acme/plugin.py").read_text()
    (contract,) = re.findall(r'requires_contract="(.+)"', source)
    next_major = f"{int(CONTRACT_VERSION.split('.')[0]) + 1}.0"
    assert SpecifierSet(contract).contains(CONTRACT_VERSION)
    assert not SpecifierSet(contract).contains(next_major)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.1.0", "dougong>=0.1,<0.2"),
        ("0.12.3", "dougong>=0.12,<0.13"),
        ("1.4.0", "dougong>=1.4,<2"),
        ("0.2.0.dev1", "dougong>=0.2,<0.3"),
    ],
)
def test_the_core_is_bounded_by_its_next_breaking_version(version: str, expected: str) -> None:
    assert plugin._core_requirement(version) == expected


def test_the_lines_to_understand_are_counted_and_said(projects: Path) -> None:
    assert plugin.count_lines("acme") == plugin.count_lines(LONGEST)
    num_lines, num_kernel_lines = plugin.count_lines("acme")
    assert num_lines <= 40
    assert num_kernel_lines <= 10
    readme = (projects / "dougong-acme" / "README.md").read_text()
    assert f"{num_lines} lines of code" in readme
    assert f"{num_kernel_lines} more" in readme


def test_a_line_to_understand_is_no_import_comment_text_or_bracket() -> None:
    source = '"""One\ntwo."""\nimport a\nfrom b import (\n    c,\n)\n\n# why\nd = c(\n    a,\n)\n'
    assert plugin._num_code_lines(source) == 2


def test_a_project_is_clean_and_formatted_by_ruffs_own_rules(projects: Path) -> None:
    ruff = (sys.executable, "-m", "ruff")
    for name in NAMES:
        for command in (("check",), ("format", "--diff")):
            done = subprocess.run(
                [*ruff, *command, "--isolated", "--no-cache", "."],
                cwd=projects / f"dougong-{name}",
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"


def test_the_command_writes_where_it_is_told_and_says_what_comes_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "not" / "yet"
    assert run_command("plugin", "new", "acme", "--folder", str(folder)) == 0
    assert (folder / "dougong-acme" / "pyproject.toml").exists()
    text = capsys.readouterr().out
    for part in ("40 lines", f"pip install -e {folder / 'dougong-acme'}", "--platform acme"):
        assert part in text


def test_without_a_folder_it_writes_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command("plugin", "new", "acme") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["dougong-acme"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", "lower case letters, digits"),
        ("Acme", "lower case letters, digits"),
        ("acme_x1", "lower case letters, digits"),
        ("acme.x1", "lower case letters, digits"),
        ("acme--x1", "lower case letters, digits"),
        ("acme-", "lower case letters, digits"),
        ("1acme", "lower case letters, digits"),
        ("acmé", "lower case letters, digits"),
        ("acme\n", "lower case letters, digits"),
        ("../acme", "lower case letters, digits"),
        (f"{LONGEST}1", "at most 20"),
        ("cpu", "the core's own platform"),
        ("reference", "the core's own attention"),
        ("native", "what plain torch is called"),
        ("dougong-acme", "dougong plugin new acme"),
    ],
)
def test_a_name_that_will_not_do_is_refused_and_nothing_written(
    tmp_path: Path, name: str, told: str
) -> None:
    with pytest.raises(ConfigError, match="(?s).*".join(("", told))):
        plugin.write_project(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_installed_platform_and_a_folder_in_the_way_are_told_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Installed(tmp_path / "stubs", monkeypatch).add(Stub(distribution="othermake", name="acme"))
    (tmp_path / "dougong-acme").mkdir()
    with pytest.raises(ConfigError) as caught:
        plugin.write_project("acme", tmp_path)
    platform, folder = caught.value.problems
    assert platform.startswith("othermake 0.1 brings a platform 'acme' already")
    assert folder.startswith(f"{tmp_path / 'dougong-acme'} exists already")
    assert list((tmp_path / "dougong-acme").iterdir()) == []


def test_an_installed_distribution_of_that_name_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Installed(tmp_path / "stubs", monkeypatch).add(Stub(distribution="dougong-acme", name="ops"))
    with pytest.raises(ConfigError, match=r"dougong-acme 0\.1 is installed already"):
        plugin.write_project("acme", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_where_the_folder_should_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        plugin.write_project("acme", tmp_path / "file" / "below")
